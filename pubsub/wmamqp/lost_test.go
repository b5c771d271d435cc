package wmamqp_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Promise P3: Close in the middle of a handler ends its context, places no letter and counts no attempt, and the
// message is delivered again only after the handler returned.
func TestCloseInHandler(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.queue(kind)
			b.send(topic, amqp091.Publishing{MessageId: "m"})
			dead := b.publisher()
			if err := dead.InitializeTopics(topic + ".dlq"); err != nil {
				t.Fatal(err)
			}
			started := make(chan struct{})
			var running atomic.Bool
			stop := b.run(topic, b.subscriber(patient), dead, poison.QueueConfig{}, func(msg *message.Message) error {
				running.Store(true)
				defer running.Store(false)
				close(started)
				<-msg.Context().Done()
				time.Sleep(300 * time.Millisecond) // it takes a while to obey
				return msg.Context().Err()
			})
			<-started
			second := b.subscribe(b.subscriber(), topic)
			go stop()
			msg := b.next(second)
			if running.Load() {
				t.Error("delivered again while the handler runs")
			}
			if d, _ := wmamqp.Counts(msg); msg.UUID != "m" || !d.Redelivered || msg.Metadata[poison.KeyAttempts] != "" {
				t.Errorf("%s %v", msg.UUID, msg.Metadata)
			}
			acks(t, msg)
			stop()
			if n := b.ready(topic + ".dlq"); n != 0 {
				t.Errorf("%d letters", n)
			}
		})
	}
}

// Promise P3: the context of Subscribe ends a subscription as Close does, and leaves the others alone.
func TestSubscribeContext(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, two := b.queue(), b.queue()
	sub := b.subscriber(patient)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages, err := sub.Subscribe(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	others := b.subscribe(sub, two)
	b.send(one, amqp091.Publishing{MessageId: "1"})
	b.send(one, amqp091.Publishing{MessageId: "2"})
	msg := b.next(messages)
	cancel()
	<-msg.Context().Done()
	acks(t, msg)
	eventually(t, "the channel is closed", func() bool {
		select {
		case _, open := <-messages:
			return !open
		default:
			return false
		}
	})
	eventually(t, "the other message is back", func() bool { return b.ready(one) == 1 })
	b.send(two, amqp091.Publishing{MessageId: "3"})
	acks(t, b.next(others))
}

// spy is an application's marshaler with which a test gets hold of the channel.
type spy struct {
	amqp.DefaultMarshaler
	channel atomic.Pointer[amqp091.Channel]
	empty   atomic.Int32
}

func (s *spy) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if c, ok := d.Acknowledger.(*amqp091.Channel); ok {
		s.channel.Store(c)
	} else {
		s.empty.Add(1)
	}
	return message.NewMessage(d.MessageId, d.Body), nil
}

// Promise P3: a channel that is lost alone, as after the broker's consumer_timeout, ends the context of the message: no
// letter, no attempt counted, and with a handler that obeys one effect. The subscription goes on on a new channel.
func TestChannelLostInHandler(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.queue(kind)
			b.send(topic, amqp091.Publishing{MessageId: "m"})
			dead, s := b.publisher(), &spy{}
			if err := dead.InitializeTopics(topic + ".dlq"); err != nil {
				t.Fatal(err)
			}
			var runs, effects atomic.Int32
			sub := b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Marshaler, *wmamqp.SettleGrace(c) = s, patience })
			b.run(topic, sub, dead, poison.QueueConfig{},
				func(msg *message.Message) error {
					if runs.Add(1) == 1 {
						_ = s.channel.Load().Ack(999, false) // an unknown delivery: the broker closes the channel
						select {
						case <-msg.Context().Done():
							return msg.Context().Err()
						case <-time.After(patience):
							t.Error("the context lives on")
						}
					}
					effects.Add(1)
					return nil
				})
			eventually(t, "it is handled", func() bool { return effects.Load() == 1 && b.ready(topic) == 0 })
			if runs.Load() != 2 || b.ready(topic+".dlq") != 0 {
				t.Errorf("%d runs, %d letters", runs.Load(), b.ready(topic+".dlq"))
			}
		})
	}
}

// Promise P4: a queue that is deleted under its consumer is declared again, and what watermill-amqp reads meanwhile is
// no message.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, s := b.queue(), &spy{}
	messages := b.subscribe(b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Marshaler = s }), topic)
	b.send(topic, amqp091.Publishing{})
	acks(t, b.next(messages)) // it consumes
	b.must(func(c *amqp091.Channel) error { _, err := c.QueueDelete(topic, false, false, false); return err })
	eventually(t, "the queue is there again", func() bool {
		return b.do(func(c *amqp091.Channel) error {
			_, err := c.QueueDeclarePassive(topic, true, false, false, false, nil)
			return err
		}) == nil
	})
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	if msg := b.next(messages); msg.UUID != "m" || s.empty.Load() != 0 {
		t.Errorf("%q, %d empty", msg.UUID, s.empty.Load())
	}
}
