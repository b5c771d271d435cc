package wmamqp_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature D4: a peer that stops reading, so that a write blocks, is an error after the time-out too, and Close returns.
func TestPublishToPeerThatStopsReading(t *testing.T) {
	t.Parallel()
	if unraced(t) {
		return
	}
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
	if unraced(t) {
		return
	}
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
