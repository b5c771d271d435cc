package wmkafka

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/wait"
)

// WrapConsumerGroupHandler takes the place of the stock handler. Watermill-kafka calls it for each member that it makes
// of this process. The one before could not leave the group if no broker answered, and a rebalance would wait for it:
// for 8 s, or the group's Rebalance.Timeout.
func (s *subscription) WrapConsumerGroupHandler(sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	if s.tenure != nil {
		go s.leaveAs(s.tenure.session.MemberID())
		s.tenure = nil
	}
	return s
}

// leaveAs takes a member out of the group, over a connection of its own. Brokers that start remember it, however long
// they were away.
func (s *subscription) leaveAs(member string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, connections := through(s.config.client)
	go func() {
		defer connections.cut()
		select {
		case <-ctx.Done():
		case <-s.ended:
			cancel()
		}
	}()
	for ctx.Err() == nil && !left(s.brokers, config, s.group, member) {
		wait.For(ctx, config.Metadata.Retry.Backoff)
	}
}

// left reports whether the group does not have the member any more.
func left(brokers []string, config *sarama.Config, group, member string) bool {
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }()
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return false
	}
	answer, err := coordinator.LeaveGroup(&sarama.LeaveGroupRequest{Version: 1, GroupId: group, MemberId: member})
	return err == nil && (answer.Err == sarama.ErrNoError || errors.Is(answer.Err, sarama.ErrUnknownMemberId))
}
