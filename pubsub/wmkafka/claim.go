package wmkafka

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// maxHold is how long a message may be held while something that its handler needs is away. The session goes on
// meanwhile, and the message's context ends with it. So a message need not be requeued, only to be delivered again.
const maxHold = 24 * time.Hour

// Setup begins a group session. It writes a line if messages had to wait for it.
func (s *subscription) Setup(session sarama.ConsumerGroupSession) error {
	if lost := s.lost.Load(); lost > 0 {
		logging.SessionAgain.Write(s.config.Logger, nil, logging.Fields{
			logging.Topic: s.topic, logging.ConsumerGroup: s.group,
			"lasted": time.Since(time.Unix(0, lost)).Round(time.Millisecond),
		})
	}
	s.begin(session)
	s.beginAt0(session)
	context.AfterFunc(session.Context(), func() { s.lost.Store(time.Now().UnixNano()) })
	return nil
}

// beginAt0 commits an offset where the group has none, before a message comes. So a group without an offset has lost it,
// and is not one whose process was killed before it committed. Sarama takes 0 for the oldest record if 0 is gone.
func (s *subscription) beginAt0(session sarama.ConsumerGroupSession) {
	config := s.client.Consumer
	if config.Offsets.Initial != sarama.OffsetOldest || !config.Group.ResetInvalidOffsets {
		return
	}
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			session.MarkOffset(topic, partition, 0, "") // does nothing where there is an offset
		}
	}
	session.Commit()
}

// Cleanup ends it. All messages are settled.
func (s *subscription) Cleanup(session sarama.ConsumerGroupSession) error {
	s.tenure.cut()
	if s.ending.Err() != nil {
		s.pin(session)
	}
	return nil
}

// ConsumeClaim delivers the records of one partition until the session ends, and lets its handlers finish. It must not
// return before: that would end the session for all partitions.
func (s *subscription) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer func() {
		for range claim.Messages() { // closed with the session; a tracer in between would hang on the record it holds
		}
	}()
	if s.config.InFlight > 1 {
		s.consumeInLanes(session, claim)
	} else {
		s.consumeInTurn(session, claim)
	}
	return nil
}

// next is nil when the session has ended.
func next(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *sarama.ConsumerMessage {
	if session.Context().Err() != nil { // of two channels that are ready, select takes any
		return nil
	}
	records := claim.Messages()
	select { // most often there is one, and a look costs half of a wait
	case record := <-records:
		return record
	default:
	}
	select {
	case <-session.Context().Done():
		return nil
	case record := <-records:
		return record
	}
}

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
