package wmamqp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// place says that nothing is left but to place the message, as the parts of a chain do.
func place(msg *message.Message) { placing.Begin(msg.Context(), msg) }

func maxPlacing(n, bytes int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) {
		c.MaxPlacing, *wmamqp.MaxPlacingBytes(c) = n, bytes
		*wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = time.Millisecond, 10*time.Millisecond
	}
}

// want takes the next message, which must be the one with the id.
func (b *broker) want(messages <-chan *message.Message, id string) *message.Message {
	b.Helper()
	msg := b.next(messages)
	testkit.Require(b, msg.UUID == id, "%q came, want %q", msg.UUID, id)
	return msg
}

// Feature D10: a message that is to be placed first is acked before the next one is delivered.
func TestPlacingFirst(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
		topic := b.queue(kind)
		ids := b.numbered(topic, 3)
		messages := b.subscribe(b.subscriber(maxPlacing(0, 0), prefetch(3)), topic)
		first := b.want(messages, ids[0])
		placing.First(first.Context())
		place(first)
		testkit.Check(t, !placing.IsAside(first.Context()), "the next message waits, and the first is aside")
		b.none(messages)
		acks(t, first)
		second := b.want(messages, ids[1])
		placing.First(second.Context())
		place(second)
		acks(t, b.want(messages, ids[2]))
		acks(t, second)
		eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
	})
}

// The messages that are being placed are bounded in number and bytes, and can be switched off.
func TestPlacingBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config func(*wmamqp.SubscriberConfig)
		most   int
	}{
		"number":    {maxPlacing(2, 0), 2},
		"bytes":     {maxPlacing(0, 2500), 3},
		"none":      {maxPlacing(-1, 0), 0},
		"in flight": {inFlight(2), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.queue()
			for i := range 6 {
				b.send(topic, amqp091.Publishing{MessageId: fmt.Sprint(i), Body: make([]byte, 1000)})
			}
			messages := b.subscribe(b.subscriber(c.config), topic)
			var placed []*message.Message
			for range max(c.most, 1) {
				placed = append(placed, b.next(messages))
				place(placed[len(placed)-1])
			}
			if name == "in flight" {
				placed = append(placed, b.next(messages))
			}
			b.none(messages)
			for range 6 - len(placed) {
				acks(t, placed[0])
				placed = append(placed[1:], b.next(messages))
				place(placed[len(placed)-1])
			}
			for _, msg := range placed {
				acks(t, msg)
			}
			eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
		})
	}
}

// Promise P3: at Close a placement that is confirmed in the grace is acked. All others come again, and nothing else.
func TestPlacingAtClose(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
		topic := b.queue(kind)
		ids := b.numbered(topic, 8)
		sub := b.subscriber(func(c *wmamqp.SubscriberConfig) { *wmamqp.SettleGrace(c) = 2 * time.Second })
		messages := b.subscribe(sub, topic)
		var placed []*message.Message
		for _, id := range ids[:5] {
			msg := b.want(messages, id)
			place(msg)
			placed = append(placed, msg)
		}
		closed := make(chan error, 1)
		go func() { closed <- sub.Close() }()
		for _, msg := range placed {
			<-msg.Context().Done()
		}
		acks(t, placed[1])
		acks(t, placed[3])
		placed[0].Nack()
		b.closed("the subscriber", <-closed)
		want := slices.Concat(ids[:1], ids[2:3], ids[4:])
		again := b.subscribe(b.subscriber(), topic)
		came := b.ack(again, len(want))
		testkit.Check(t, slices.Equal(came, want), "%q came again, want %q", came, want)
		b.none(again)
	})
}

// Where the broker lets no consumer ask for messages, those that are being placed leave the prefetch to the next ones,
// and at its end the subscriber waits.
func TestPlacingSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	for kind, arguments := range map[string]amqp091.Table{"classic": singleActive, "quorum": wmamqp.QuorumQueue(singleActive)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic()
			b.declareWith(topic, arguments)
			ids := b.numbered(topic, 20)
			messages := b.subscribe(b.subscriber(maxPlacing(0, 0), prefetch(2)), topic)
			acked := map[string]bool{}
			for len(acked) < len(ids) {
				msg := b.next(messages)
				place(msg)
				time.AfterFunc(5*time.Millisecond, func() { msg.Ack() })
				acked[msg.UUID] = true
			}
			eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
		})
	}
}

// Promises P1, P3: messages are placed at random, for a random time: they come first in order, and each is acked once.
func TestPlacingKeepsOrder(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	for _, kind := range kinds {
		for _, fetched := range []int{1, 5} {
			random := rand.New(rand.NewPCG(random.Uint64(), 0))
			t.Run(fmt.Sprint(kind, "/", fetched), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.queue(kind)
				ids := b.numbered(topic, 200)
				messages := b.subscribe(b.subscriber(maxPlacing(1+random.IntN(20), 0), prefetch(fetched)), topic)
				for _, id := range ids {
					msg := b.want(messages, id)
					if random.IntN(3) > 0 {
						acks(t, msg)
						continue
					}
					place(msg)
					time.AfterFunc(time.Duration(random.IntN(8000))*time.Microsecond, func() { msg.Ack() })
				}
				eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
				b.none(messages)
			})
		}
	}
}

func prefetch(n int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) { c.AMQP.Consume.Qos.PrefetchCount = n }
}

// unfetched waits until n messages of a queue are at no consumer.
func (b *broker) unfetched(queue string, n int) {
	b.Helper()
	eventually(b, "the messages of "+queue+" that no consumer has", func() bool { return b.ready(queue) == n })
}

// While a part keeps the valve shut, a consumer that fetched several messages gives all of them back, once.
func TestShutValveRequeuesPrefetched(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
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
			want := b2i(kind == "quorum" && !b.atLeast(4, 3)) * (b2i(i < 4) + b2i(i == 4))
			testkit.Check(t, d.Count == want,
				"message %d: the queue counts %d deliveries, want %d", i, d.Count, want)
			n, _ := wmamqp.DeliveryCount(msg)
			testkit.Check(t, i != 0 || n == 0, "%d deliveries are counted of a message that was requeued", n)
			acks(t, msg)
		}
		eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A message that a part held for long goes back with all that were fetched: their time at the broker runs too.
func TestHeldMessageRequeuesPrefetched(t *testing.T) {
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
	testkit.Equal(t, "messages are left of 3", b.ready(topic), 3)
}
