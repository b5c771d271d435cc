package wmamqp_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Promise P1: what the end of a subscription requeues comes to none of its own consumers: a quorum queue counts, and
// from RabbitMQ 4 on drops a message that was requeued often.
func TestGivenBackOnce(t *testing.T) {
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
					count := b.get(topic).Headers["x-delivery-count"]
					testkit.Check(t, count == int64(1), "requeued %v times", count)
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

// A connection that has no room for so many channels is an error. Subscriptions that begin at once do not take the
// channels of each other, and one whose context has ended does not begin.
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
			says(t, err, "9 channels", "2 other subscriptions", "InFlight 4")
		}
	}
	eventually(t, "two have all their consumers", func() bool {
		return b.consumers(queues[0])+b.consumers(queues[1])+b.consumers(queues[2]) == 8
	})
	testkit.Check(t, failed == 1, "%d are refused", failed)
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
