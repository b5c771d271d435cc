package wmamqp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
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

// Promise P3: when the connection is lost all messages in flight learn of it, and what is being placed, and each is acked
// once on the new one.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	if unraced(t) {
		return
	}
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
