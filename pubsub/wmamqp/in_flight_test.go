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

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func inFlight(n int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) {
		c.InFlight, c.NackBackoff, c.MaxNackBackoff = n, 10*time.Millisecond, 20*time.Millisecond
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

// Promise P1: as many messages are in flight as was said, each is settled for itself, and what is not acked at Close comes
// again, and nothing else.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.queue(kind)
			ids := b.numbered(topic, 9)
			sub := b.subscriber(inFlight(4))
			messages := b.subscribe(sub, topic)
			var got []*message.Message
			take := func(n int) {
				for range n {
					got = append(got, b.next(messages))
				}
			}
			take(4)
			b.none(messages)
			got[3].Nack() // and comes again, to any channel
			acks(t, got[1])
			take(2)
			b.none(messages)
			closed := make(chan error, 1)
			go func() { closed <- sub.Close() }()
			for _, msg := range got {
				<-msg.Context().Done()
			}
			acks(t, got[0]) // in the grace
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(ids, func(id string) bool { return id == got[0].UUID || id == got[1].UUID })
			again := b.subscribe(b.subscriber(), topic)
			if came := b.ack(again, len(want)); !slices.Equal(came, want) {
				t.Errorf("%q came again, want %q", came, want)
			}
			b.none(again)
		})
	}
}

// Promise P3: when the connection is lost all messages in flight learn of it, and each is acked once on the new one.
func TestInFlightConnectionLost(t *testing.T) {
	t.Parallel()
	if unraced(t) {
		return
	}
	b := newBroker(t)
	topic, p := b.queue(), b.proxy()
	ids := b.numbered(topic, 6)
	messages := b.subscribe(b.subscriber(inFlight(6), func(c *wmamqp.SubscriberConfig) {
		c.AMQP.Connection.AmqpURI, c.SettleGrace = p.uri, 100*time.Millisecond
	}), topic)
	var all []*message.Message
	for range ids {
		all = append(all, b.next(messages))
	}
	p.Cut()
	for i, msg := range all {
		select {
		case <-msg.Context().Done():
		case <-time.After(patience):
			t.Fatalf("the context of message %d outlived its connection", i)
		}
	}
	p.Heal()
	if came := b.ack(messages, len(ids)); !slices.Equal(came, ids) {
		t.Errorf("%q came again", came)
	}
	eventually(t, "all are acked", func() bool { return b.ready(topic) == 0 })
}

// Promise P1: whatever is acked and nacked, and however often the subscriber is closed in between, each message is acked in
// the end, once.
func TestInFlightLosesNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBroker(t)
	const n = 300
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
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if round > 100 {
			t.Fatalf("%d of %d are acked after %d rounds", len(acked), n, round)
		}
	}
	for id, times := range acked {
		if times > 1 {
			t.Errorf("%q was acked %d times", id, times)
		}
	}
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
}

// A queue that has a single active consumer keeps its order.
func TestInFlightSingleActive(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	b.must(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic, true, false, false, false, amqp091.Table{"x-single-active-consumer": true})
		return err
	})
	ids := b.numbered(topic, 3)
	messages := b.subscribe(b.subscriber(inFlight(4)), topic)
	for _, id := range ids {
		msg := b.next(messages)
		b.none(messages)
		if acks(t, msg); msg.UUID != id {
			t.Errorf("%q came, want %q", msg.UUID, id)
		}
	}
}

// A connection that has no room for so many channels is an error, and nobody keeps a message.
func TestInFlightNoChannel(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, two := b.queue(), b.queue()
	few := amqp091.Config{ChannelMax: 12} // to declare a queue takes one for a while
	sub := b.subscriber(inFlight(4), func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpConfig = &few })
	b.subscribe(sub, one)
	b.subscribe(sub, two)
	third := b.queue()
	b.send(third, amqp091.Publishing{MessageId: "m"})
	_, err := sub.Subscribe(context.Background(), third)
	says(t, err, third, "12 channels", "2 other subscriptions", "InFlight 4")
	acks(t, b.next(b.subscribe(b.subscriber(), third)))
}

// Promise P1: what the end of a subscription gives back comes to none of its own consumers: a quorum queue counts, and from
// RabbitMQ 4 on drops a message that was given back often.
func TestGivenBackOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4, 30} {
		for _, by := range []string{"Close", "context"} {
			t.Run(fmt.Sprintf("%d in flight, %s", n, by), func(t *testing.T) {
				b := newBroker(t)
				topic := b.queue("quorum")
				b.numbered(topic, n/2+1)
				sub := b.subscriber(inFlight(n), func(c *wmamqp.SubscriberConfig) {
					c.SettleGrace, c.NackBackoff, c.MaxNackBackoff = 100*time.Millisecond, time.Minute, time.Minute
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				messages, err := sub.Subscribe(ctx, topic)
				if err != nil {
					t.Fatal(err)
				}
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
				if err := sub.Close(); err != nil {
					t.Fatal(err)
				}
				var counts []any
				for range n/2 + 1 {
					counts = append(counts, b.get(topic).Headers["x-delivery-count"])
				}
				for _, count := range counts {
					if count != int64(1) {
						t.Fatalf("given back %v times", counts)
					}
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
	sub := b.subscriber(inFlight(4), func(c *wmamqp.SubscriberConfig) { c.SettleGrace = 15 * time.Second })
	b.send(topic, amqp091.Publishing{MessageId: "held"})
	held := b.next(b.subscribe(sub, topic))
	other := b.subscribe(b.subscriber(), topic)
	eventually(t, "all consume", func() bool { return b.consumers(topic) == 5 })
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	eventually(t, "only the busy one is left, and the other", func() bool { return b.consumers(topic) == 2 })
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
	if n := b.ready(topic); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

func (b *broker) consumers(queue string) (n int) {
	b.Helper()
	b.must(func(c *amqp091.Channel) error {
		q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = q.Consumers
		return err
	})
	return n
}

// Subscriptions that begin at once do not take the channels of each other, and one whose context has ended does not begin.
func TestInFlightAtOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	few := amqp091.Config{ChannelMax: 9}
	sub := b.subscriber(inFlight(4), func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpConfig = &few })
	queues := []string{b.queue(), b.queue(), b.queue()}
	errs := make(chan error)
	for _, topic := range queues {
		go func() {
			_, err := sub.Subscribe(context.Background(), topic)
			errs <- err
		}()
	}
	failed := 0
	for range queues {
		if err := <-errs; err != nil {
			failed++
			says(t, err, "9 channels")
		}
	}
	eventually(t, "two have all their consumers", func() bool {
		return b.consumers(queues[0])+b.consumers(queues[1])+b.consumers(queues[2]) == 8
	})
	if failed != 1 {
		t.Errorf("%d are refused", failed)
	}
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
		return c.PublishWithContext(context.Background(), exchange, "", true, false, amqp091.Publishing{MessageId: "m"})
	})
	acks(t, b.next(messages))
	b.none(messages)
	if n := named.Load(); n != 1 {
		t.Errorf("%d queues", n)
	}
}

// BenchmarkInFlight empties a queue with a handler of 5 ms, as a stage does that many messages wait in.
func BenchmarkInFlight(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			broker := newBroker(b)
			topic := broker.queue()
			broker.must(func(c *amqp091.Channel) error {
				for range b.N {
					if err := c.PublishWithContext(context.Background(), "", topic, true, false, amqp091.Publishing{MessageId: "m"}); err != nil {
						return err
					}
				}
				return nil
			})
			eventually(b, "all are there", func() bool { return broker.ready(topic) == b.N })
			messages := broker.subscribe(broker.subscriber(inFlight(n)), topic)
			b.ResetTimer()
			for range b.N {
				msg := broker.next(messages)
				go func() {
					time.Sleep(5 * time.Millisecond)
					msg.Ack()
				}()
			}
			eventually(b, "all are acked", func() bool { return broker.ready(topic) == 0 })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
