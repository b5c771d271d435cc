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

// No broker: Subscribe and Backlog say so within bounded time, and Close returns.
func TestNoBroker(t *testing.T) {
	sub, err := NewSubscriber([]string{"127.0.0.1:1"}, "g", SubscriberConfig{})
	testkit.NoError(t, err)
	start := time.Now()
	testkit.Says(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), `"orders"`)
	testkit.Says(t, testkit.Err(sub.Backlog(context.Background(), "orders")), `"orders"`)
	testkit.NoError(t, sub.Close())
	if took := time.Since(start); took > patience { // a hang; it takes a second
		t.Errorf("it took %s", took)
	}
}

// After Close: nothing is subscribed to any more, and Close may be called again.
func TestClosedSubscriber(t *testing.T) {
	sub, err := NewSubscriber([]string{"127.0.0.1:1"}, "g", SubscriberConfig{})
	testkit.NoError(t, err)
	testkit.NoError(t, errors.Join(sub.Close(), sub.Close()))
	testkit.Is(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), ErrClosed)
}

// Promise P1: what was acked is committed by Close and does not come again; what was not does.
func TestOffsetsAcrossClose(t *testing.T) {
	t.Parallel()
	for name, autoCommit := range map[string]bool{"auto-commit": true, "commit by each ack": false} {
		t.Run(name, func(t *testing.T) {
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
			if !errors.Is(held.Context().Err(), context.Canceled) {
				t.Errorf("the context of the message in hand has %v", held.Context().Err())
			}
			held.Ack() // too late: the subscription ended
			if _, open := <-messages; open {
				t.Error("a message came after Close")
			}
			if got := c.committed(); got != 3 {
				t.Fatalf("committed %d", got)
			}
			if msg := c.next(c.subscribe(c.subscriber(SubscriberConfig{}))); msg.UUID != "id-3" || !msg.Ack() {
				t.Errorf("the next subscriber begins with %q", msg.UUID)
			}
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
			c := newCluster(t)
			c.produce(numbered(2)...)
			sub := c.subscriber(SubscriberConfig{settleGrace: row.grace})
			messages := c.subscribe(sub)
			msg := c.next(messages)
			go row.settle(msg)
			c.closes(sub)
			if _, open := <-messages; open {
				t.Error("a message came after Close")
			}
			if got := c.committed(); got != row.committed {
				t.Errorf("committed %d, want %d", got, row.committed)
			}
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
	messages, err := c.subscriber(SubscriberConfig{}).Subscribe(ctx, c.topic)
	testkit.NoError(t, err)
	msg := c.next(messages)
	call := chain.Keep(msg)
	defer call.Release()
	expire()
	<-msg.Context().Done()
	if !call.Gone() || msg.Context().Value(key{}) != "value" {
		t.Errorf("aborted %t: %v, value %v", call.Gone(), msg.Context().Err(), msg.Context().Value(key{}))
	}
	msg.Nack()
	if _, open := <-messages; open {
		t.Error("a message came after the end")
	}
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
		if how := d.settled(d.of.Done()); how != acked {
			t.Fatalf("round %d: settled as %d", round, how)
		}
	}
}
