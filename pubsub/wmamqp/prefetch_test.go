package wmamqp_test

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/gate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func prefetch(n int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) { c.AMQP.Consume.Qos.PrefetchCount = n }
}

// unfetched waits until n messages of a queue are at no consumer.
func (b *broker) unfetched(queue string, n int) {
	b.Helper()
	eventually(b, "the messages of "+queue+" that no consumer has", func() bool { return b.ready(queue) == n })
}

// While a part keeps the valve shut, a consumer that fetched several messages gives all of them back, once. Then it
// fetches one at a time, which has no valve and is held, until as many are acked in a row.
func TestShutValveGivesBackPrefetched(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.queue(kind)
			ids := b.numbered(topic, 12)
			messages := b.subscribe(b.subscriber(prefetch(4), func(c *wmamqp.SubscriberConfig) {
				*wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = time.Hour, time.Hour
			}), topic)
			msg := b.next(messages)
			b.unfetched(topic, 8)
			reopen := make(chan struct{})
			valve := gate.Of(msg.Context())
			valve.Shut(reopen)
			msg.Nack()
			b.unfetched(topic, 12)
			b.none(messages)
			b.unfetched(topic, 12)
			close(reopen)
			for i, id := range ids {
				msg := b.next(messages)
				testkit.Require(t, msg.UUID == id, "%s came, want %s", msg.UUID, id)
				switch {
				case i < 4 && gate.Of(msg.Context()) != nil:
					t.Errorf("message %d has a valve, but is the only one fetched", i)
				case i < 4:
					b.unfetched(topic, 11-i)
				case gate.Of(msg.Context()) == nil:
					t.Errorf("message %d has no valve", i)
				default:
					b.unfetched(topic, max(8-i, 0))
				}
				d, _ := wmamqp.Counts(msg)
				if want := b2i(kind == "quorum") * (b2i(i < 4) + b2i(i == 4)); d.Count != want {
					t.Errorf("message %d: the queue counts %d deliveries, want %d", i, d.Count, want)
				}
				n, _ := wmamqp.DeliveryCount(msg)
				testkit.Check(t, i != 0 || n == 0, "%d deliveries are counted of a message that was requeued", n)
				acks(t, msg)
			}
			eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A message that a part held for long goes back with all that were fetched: their time at the broker runs too.
func TestHeldMessageGivesBackPrefetched(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	ids := b.numbered(topic, 4)
	messages := b.subscribe(b.subscriber(prefetch(4), func(c *wmamqp.SubscriberConfig) {
		c.MaxHold, *wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = 100*time.Millisecond, time.Hour, time.Hour
	}), topic)
	msg := b.next(messages)
	time.Sleep(100 * time.Millisecond)
	msg.Nack()
	for i, id := range ids {
		msg := b.next(messages)
		testkit.Require(t, msg.UUID == id, "%s came, want %s", msg.UUID, id)
		b.unfetched(topic, 3-i)
		acks(t, msg)
	}
}

// Close ends a subscription that waits at its valve.
func TestCloseAtShutValve(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	b.numbered(topic, 3)
	sub := b.subscriber(prefetch(3))
	messages := b.subscribe(sub, topic)
	msg := b.next(messages)
	gate.Of(msg.Context()).Shut(make(chan struct{}))
	msg.Nack()
	b.unfetched(topic, 3)
	testkit.Within(t, "Close", func() { b.closed("the subscriber", sub.Close()) })
	_, open := <-messages
	testkit.Check(t, !open, "a message came after Close")
	n := b.ready(topic)
	testkit.Check(t, n == 3, "%d messages are left of 3", n)
}
