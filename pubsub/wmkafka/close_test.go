package wmkafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// No broker: Subscribe and Backlog say so within bounded time, and Close returns. After Close nothing is subscribed to
// any more, and Close may be called again.
func TestNoBroker(t *testing.T) {
	sub := testkit.Must(NewSubscriber([]string{"127.0.0.1:1"}, "g", SubscriberConfig{}))
	testkit.Within(t, "all says so", func() {
		testkit.Says(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), `"orders"`)
		testkit.Says(t, testkit.Err(sub.Backlog(context.Background(), "orders")), `"orders"`)
		testkit.Is(t, errors.Join(sub.Close(), sub.Close()), nil)
	})
	testkit.Is(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), ErrClosed)
}

// Promise P1: what was acked is committed by Close and does not come again; what was not does.
func TestOffsetsAcrossClose(t *testing.T) {
	t.Parallel()
	for name, autoCommit := range map[string]bool{"auto-commit": true, "commit by each ack": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.produce(numbered(5)...)
			sub := c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
				config.Consumer.Offsets.AutoCommit.Enable = autoCommit
			}})
			messages := c.subscribe(sub)
			for range 3 {
				c.next(messages).Ack()
			}
			held := c.next(messages) // and is not acked
			testkit.NoError(t, sub.Close())
			testkit.Is(t, held.Context().Err(), context.Canceled)
			held.Ack() // too late: the subscription ended
			c.over(messages)
			testkit.Equal(t, "committed", c.committed(), 3)
			msg := c.next(c.subscribe(c.subscriber(SubscriberConfig{})))
			testkit.Check(t, msg.UUID == "id-3" && msg.Ack(), "the next subscriber begins with %q", msg.UUID)
		})
	}
}

// Promise P3: when the subscriber is closed under a handler, the handler learns of it, has the grace to finish, and its
// ack counts; one that does not care holds nothing up.
func TestCloseUnderHandler(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		settle    func(*message.Message)
		grace     time.Duration
		committed int64
	}{
		"acks in the grace":  {func(msg *message.Message) { <-msg.Context().Done(); msg.Ack() }, patience, 1},
		"nacks in the grace": {func(msg *message.Message) { <-msg.Context().Done(); msg.Nack() }, patience, -1},
		"does not care":      {func(*message.Message) {}, time.Second, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.produce(numbered(2)...)
			sub := c.subscriber(SubscriberConfig{settleGrace: row.grace})
			messages := c.subscribe(sub)
			msg := c.next(messages)
			go row.settle(msg)
			c.closes(sub)
			c.over(messages)
			testkit.Equal(t, "committed", c.committed(), row.committed)
		})
	}
}

// Promise P3: the message's context is cancelled, and so its message aborted, even where a deadline ended the
// subscription.
func TestDeadlineOfSubscription(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	type key struct{}
	ctx, expire := testkit.Expiring(context.WithValue(context.Background(), key{}, "value"))
	messages := testkit.Must(c.subscriber(SubscriberConfig{}).Subscribe(ctx, c.topic))
	msg := c.next(messages)
	call := chain.Keep(msg)
	defer call.Release()
	expire()
	<-msg.Context().Done()
	testkit.Check(t, call.Gone() && msg.Context().Value(key{}) == "value", "it is not aborted, or has lost its values")
	testkit.Check(t, errors.Is(msg.Context().Err(), context.Canceled), "it ends with %v", msg.Context().Err())
	msg.Nack()
	c.over(messages)
}

// Promise P3: a message that was acked when the grace of its session ended is acked, however late the process comes to
// look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	for round := range 1000 {
		g := newGroup(t, 0)
		s := subscriptionOf(t, SubscriberConfig{settleGrace: time.Nanosecond}, true)
		s.begin(g)
		d := s.deliver(s.tenure.work, &sarama.ConsumerMessage{Topic: "orders"})
		g.end()
		d.msg.Ack()
		how := d.settled(d.of.Done())
		testkit.Require(t, how == acked, "round %d: settled as %d", round, how)
	}
}
