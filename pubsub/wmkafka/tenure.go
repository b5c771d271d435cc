package wmkafka

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

const (
	// soon is how long handlers may finish before the broker is asked whether this member is still one: most do.
	soon = 100 * time.Millisecond
	// askEvery is the time between two questions, and how long an answer may take.
	askEvery = time.Second
)

// tenure is what a subscription does in one group session, and for a little longer. The session ends when the
// subscription does, and in each rebalance. Handlers may finish then, for as long as the broker leaves the partitions
// to this member: the client sends heartbeats, marks are committed, and other members wait.
type tenure struct {
	session sarama.ConsumerGroupSession
	work    context.Context // of messages
	cut     context.CancelFunc
}

func (s *subscription) begin(session sarama.ConsumerGroupSession) {
	taking := session.Context()
	t := &tenure{session: session}
	work := graceful.Until(hold.WithMaxHold(context.WithoutCancel(taking), maxHold), taking)
	t.work, t.cut = context.WithCancel(work)
	s.tenure = t
	context.AfterFunc(taking, func() {
		defer t.cut()
		if most := graceful.TimeoutOf(taking); most > 0 && wait.For(t.work, min(soon, most)) {
			s.finish(t, most-soon)
		}
	})
}

// finish returns when handlers must not go on: after most, when a rebalance has waited for as long as it may, or when
// the group may have given the partitions to another member.
func (s *subscription) finish(t *tenure, most time.Duration) {
	until := time.Now().Add(most)
	ctx, cancel := context.WithCancel(t.work)
	defer cancel()
	answers := s.membership(ctx, t.session)
	defer func() {
		cancel()
		for range answers {
		}
	}()
	room := time.AfterFunc(most, cancel)
	defer room.Stop()
	rebalancing := false
	for late := time.NewTimer(askEvery); ; late.Reset(2 * askEvery) {
		select {
		case <-ctx.Done():
			return
		case <-late.C: // no answer, which may mean that the broker does not see this member
			return
		case err := <-answers:
			switch {
			case err == nil:
			case !errors.Is(err, sarama.ErrRebalanceInProgress):
				return
			case !rebalancing:
				rebalancing = true
				room.Reset(min(s.config.rebalanceRoom(), time.Until(until)))
			}
		}
	}
}

// rebalanceRoom is how long a rebalance may wait for handlers: members that hold it up for longer than the time-out are
// left out of it. It is noticed with a heartbeat, and the grace comes after it.
func (c *SubscriberConfig) rebalanceRoom() time.Duration {
	group := &c.client.Consumer.Group
	return max(group.Rebalance.Timeout-group.Heartbeat.Interval-c.settleGrace-askEvery, 0)
}

// membership asks again and again whether this process is still a member of the generation of session, over a connection of
// its own: sarama does not say why a session ended. Each answer is nil, ErrRebalanceInProgress, or the error with which
// it may not be one. The channel is closed when ctx has ended.
func (s *subscription) membership(ctx context.Context, session sarama.ConsumerGroupSession) <-chan error {
	config, connections := through(s.config.client)
	config.Metadata.Retry.Max = 0
	cut := context.AfterFunc(ctx, connections.cut)
	answers := make(chan error)
	go func() {
		defer close(answers)
		defer cut()
		client, err := sarama.NewClient(s.brokers, config)
		if err == nil {
			defer func() { _ = client.Close() }()
		}
		for ctx.Err() == nil {
			if err == nil {
				err = heartbeat(client, s.group, session)
			}
			select {
			case answers <- err:
			case <-ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, sarama.ErrRebalanceInProgress) || !wait.For(ctx, askEvery) {
				return
			}
			err = nil
		}
	}()
	return answers
}

func heartbeat(client sarama.Client, group string, session sarama.ConsumerGroupSession) error {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return err
	}
	response, err := coordinator.Heartbeat(&sarama.HeartbeatRequest{
		GroupId: group, MemberId: session.MemberID(), GenerationId: session.GenerationID(),
	})
	switch {
	case err != nil:
		return err
	case response.Err != sarama.ErrNoError:
		return response.Err
	}
	return nil
}
