package wmamqp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func inFlight(n int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) {
		c.InFlight, *wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = n, 10*time.Millisecond, 20*time.Millisecond
	}
}

// numbered sends n messages.
func (b *broker) numbered(queue string, n int) (ids []string) {
	b.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("id-%03d", i))
		b.send(queue, amqp091.Publishing{MessageId: ids[i]})
	}
	return ids
}

// none checks that no message comes for a while.
func (b *broker) none(messages <-chan *message.Message) {
	b.Helper()
	select {
	case msg := <-messages:
		b.Errorf("%q came, which is one too many in flight", msg.UUID)
	case <-time.After(200 * time.Millisecond):
	}
}

// ack acks the next n messages and returns their ids, sorted.
func (b *broker) ack(messages <-chan *message.Message, n int) (ids []string) {
	b.Helper()
	for range n {
		msg := b.next(messages)
		acks(b.TB, msg)
		ids = append(ids, msg.UUID)
	}
	slices.Sort(ids)
	return ids
}

// Promise P3: when the connection is lost all messages in flight learn of it, and what is being placed, and each is
// acked once on the new one.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){"in flight": inFlight(6), "placed": maxPlacing(0, 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic, p := b.queue("quorum"), b.proxy()
			ids := b.numbered(topic, 6)
			messages := b.subscribe(b.subscriber(change, func(c *wmamqp.SubscriberConfig) {
				c.AMQP.Connection.AmqpURI, *wmamqp.SettleGrace(c) = p.uri, 100*time.Millisecond
			}), topic)
			var all []*message.Message
			for range ids {
				all = append(all, b.next(messages))
				if name == "placed" {
					place(all[len(all)-1])
				}
			}
			p.Cut()
			for i, msg := range all {
				testkit.Within(t, "the end of a context", func() { <-msg.Context().Done() })
				if i%2 == 0 {
					acks(t, msg) // which does not reach the broker
				}
			}
			p.Heal()
			came := b.ack(messages, len(ids))
			testkit.Check(t, slices.Equal(came, ids), "%q came again", came)
			eventually(t, "all are acked", func() bool { return b.ready(topic) == 0 })
		})
	}
}

// Promise P1: whatever is acked and nacked, and however often the subscriber is closed in between, each message is
// acked in the end, once.
func TestInFlightLosesNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBroker(t)
	const n = 120
	topic := b.queue()
	b.numbered(topic, n)
	acked := map[string]int{}
	for round := 0; len(acked) < n; round++ {
		sub := b.subscriber(inFlight(1 + random.IntN(20)))
		messages := b.subscribe(sub, topic)
		var held []*message.Message
		for range 20 + random.IntN(80) {
			if len(held) == 0 {
				if len(acked) == n {
					break
				}
				held = append(held, b.next(messages)) // those that are not acked come again
			}
			select {
			case msg := <-messages:
				held = append(held, msg)
			case <-time.After(100 * time.Millisecond): // all that may be is in flight
			}
			i := random.IntN(len(held))
			msg := held[i]
			held = slices.Delete(held, i, i+1)
			if random.IntN(4) == 0 {
				msg.Nack()
				continue
			}
			acks(t, msg)
			acked[msg.UUID]++
		}
		for _, msg := range held {
			msg.Nack()
		}
		testkit.NoError(t, sub.Close())
		testkit.Require(t, round <= 100, "%d of %d are acked after %d rounds", len(acked), n, round)
	}
	for id, times := range acked {
		testkit.Check(t, times <= 1, "%q was acked %d times", id, times)
	}
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
}

// Promise P1: what the end of a subscription requeues comes to none of its own consumers: a quorum queue counts, and
// from RabbitMQ 4 on drops a message that was requeued often.
func TestRequeuedOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 30} {
		for _, by := range []string{"Close", "context"} {
			t.Run(fmt.Sprintf("%d in flight, %s", n, by), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.queue("quorum")
				b.numbered(topic, n/2+1)
				sub := b.subscriber(inFlight(n), func(c *wmamqp.SubscriberConfig) {
					*wmamqp.SettleGrace(c), *wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = 100*time.Millisecond, time.Minute, time.Minute
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				messages := testkit.Must(sub.Subscribe(ctx, topic))
				for i := range n/2 + 1 {
					msg := b.next(messages)
					switch i % 3 { // the others outlive the grace
					case 0:
						msg.Nack() // and is kept for a minute
					case 1:
						go func() { <-msg.Context().Done(); msg.Nack() }()
					}
				}
				if by == "context" {
					cancel()
					for range messages {
					}
				}
				testkit.NoError(t, sub.Close())
				for range n/2 + 1 {
					headers := b.get(topic).Headers
					name, want := "x-delivery-count", int64(1)
					if b.atLeast(4, 3) {
						name = "x-acquired-count" // which counts a nack too
					}
					testkit.Check(t, headers[name] == want, "requeued %v times", headers[name])
				}
			})
		}
	}
}

// Promise P4: at Close only what is in a handler's hands is kept for the grace: others get the rest at once.
func TestInFlightIdleEnd(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	sub := b.subscriber(inFlight(4), patient)
	b.send(topic, amqp091.Publishing{MessageId: "held"})
	held := b.next(b.subscribe(sub, topic))
	other := b.subscribe(b.subscriber(), topic)
	eventually(t, "all consume", func() bool { return b.consumers(topic) == 5 })
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	eventually(t, "only the other takes messages", func() bool { return b.consumers(topic) == 1 })
	for range b.numbered(topic, 4) {
		acks(t, b.next(other))
	}
	select {
	case err := <-closed:
		t.Errorf("closed before the handler returned: %v", err)
	default:
	}
	acks(t, held)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	n := b.ready(topic)
	testkit.Check(t, n == 0, "%d messages are left", n)
}

// A connection that has no room for so many channels is an error.
func TestInFlightAtOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	few := amqp091.Config{ChannelMax: 9}
	sub := b.subscriber(inFlight(4), func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpConfig = &few })
	queues := []string{b.queue(), b.queue(), b.queue()}
	for _, topic := range queues[:2] {
		b.subscribe(sub, topic)
	}
	says(t, testkit.Err(sub.Subscribe(t.Context(), queues[2])), "no more channels", "InFlight 4")
	eventually(t, "two have all their consumers, and the third has none", func() bool {
		return b.consumers(queues[0]) == 4 && b.consumers(queues[1]) == 4 && b.consumers(queues[2]) == 0
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.subscriber(inFlight(4)).Subscribe(ctx, queues[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A queue whose name is another one each time is one queue for all that are in flight.
func TestInFlightRandomName(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	exchange := b.topic()
	var named atomic.Int32
	sub := b.subscriber(inFlight(3), func(c *wmamqp.SubscriberConfig) {
		c.AMQP = amqp.NewNonDurablePubSubConfig("", func(topic string) string {
			return fmt.Sprint(topic, ".", named.Add(1))
		})
		c.AMQP.Queue.AutoDelete = true
	})
	messages := b.subscribe(sub, exchange)
	b.must(func(c *amqp091.Channel) error {
		return c.PublishWithContext(t.Context(), exchange, "", true, false, amqp091.Publishing{MessageId: "m"})
	})
	acks(t, b.next(messages))
	b.none(messages)
	n := named.Load()
	testkit.Check(t, n == 1, "%d queues", n)
}
