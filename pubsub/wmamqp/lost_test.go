package wmamqp_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Promise P3: Close in the middle of a handler ends its context, and the message is delivered again only after the
// handler returned.
func TestCloseInHandler(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
		topic := b.queue(kind)
		b.send(topic, amqp091.Publishing{MessageId: "m"})
		sub := b.subscriber(patient)
		handled := b.next(b.subscribe(sub, topic))
		second := b.subscribe(b.subscriber(), topic)
		closed := make(chan error, 1)
		go func() { closed <- sub.Close() }()
		<-handled.Context().Done()
		b.none(second) // it takes a while to obey
		handled.Nack()
		msg := b.next(second)
		d, _ := wmamqp.Counts(msg)
		testkit.Check(t, msg.UUID == "m" && d.Redelivered && len(msg.Metadata) <= 1,
			"%s %v", msg.UUID, msg.Metadata)
		acks(t, msg)
		b.closed("the subscriber", <-closed)
	})
}

// Promise P3: the context of Subscribe ends a subscription as Close does, and leaves the others alone.
func TestSubscribeContext(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, two := b.queue(), b.queue()
	sub := b.subscriber(patient)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages := testkit.Must(sub.Subscribe(ctx, one))
	others := b.subscribe(sub, two)
	b.send(one, amqp091.Publishing{MessageId: "1"})
	b.send(one, amqp091.Publishing{MessageId: "2"})
	msg := b.next(messages)
	cancel()
	<-msg.Context().Done()
	acks(t, msg)
	if msg := testkit.Receive(t, "the channel is closed", messages); msg != nil {
		t.Errorf("%s came", msg.UUID)
	}
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

// Promise P3: a channel that is lost alone, as after the broker's consumer_timeout, ends the context of the message, and
// the message comes again, once. The subscription goes on on a new channel.
func TestChannelLostInHandler(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
		topic, s := b.queue(kind), &spy{}
		b.send(topic, amqp091.Publishing{MessageId: "m"})
		messages := b.subscribe(b.subscriber(patient, func(c *wmamqp.SubscriberConfig) { c.AMQP.Marshaler = s }), topic)
		first := b.next(messages)
		_ = s.channel.Load().Ack(999, false) // an unknown delivery: the broker closes the channel
		testkit.Within(t, "the end of the context", func() { <-first.Context().Done() })
		first.Nack()
		acks(t, b.next(messages))
		eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
		b.none(messages)
	})
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
	msg := b.next(messages)
	testkit.Check(t, msg.UUID == "m" && s.empty.Load() == 0, "%q, %d empty", msg.UUID, s.empty.Load())
}

// Feature D4: a broker that answers heartbeats, and confirms nothing, does not keep a publisher for ever.
func TestPublishToPeerThatConfirmsNothing(t *testing.T) {
	for _, how := range []string{deaf, stingy} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{}
				pub, err := wmamqp.NewPublisher("amqp://peer/", wmamqp.PublisherConfig{AMQP: p.config()})
				testkit.NoError(t, err)
				publish := func() error { return pub.Publish("q", message.NewMessage("1", nil)) }
				testkit.NoError(t, publish())
				p.falls(how)
				begun := time.Now()
				for err = publish(); err != nil && time.Since(begun) < 5*time.Minute; err = publish() {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(begun)
				testkit.Check(t, err == nil && took <= 50*time.Second, "confirmed after %s: %v", took, err)
				if err := pub.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// Feature D4: a peer that stops reading, so that a write blocks, is an error after the time-out too, and Close returns.
func TestPublishToPeerThatStopsReading(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, proxy := b.queue(), b.proxy()
	p := b.publisher(func(c *wmamqp.PublisherConfig) {
		c.AMQP.Connection.AmqpURI, c.ConfirmTimeout = proxy.uri, 300*time.Millisecond
	})
	proxy.Stall()
	testkit.Within(t, "Publish", func() {
		if err := p.Publish(topic, message.NewMessage("big", make([]byte, 64<<20))); err == nil { // more than buffers take
			t.Error("a peer that does not read confirmed")
		}
	})
	testkit.Within(t, "Close", func() { b.closed("the publisher", p.Close()) })
	proxy.Heal()
}

// Heartbeats find a peer that does not answer: the context ends, and the message comes again on a new connection.
func TestHeartbeatEndsContext(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, proxy := b.queue(), b.proxy()
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	messages := b.subscribe(b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = proxy.uri + "?heartbeat=1" }), topic)
	msg := b.next(messages)
	proxy.HalfOpen()
	select {
	case <-msg.Context().Done():
	case <-time.After(patience):
		t.Fatal("the context lives")
	}
	msg.Nack()
	proxy.Heal()
	acks(t, b.next(messages))
}
