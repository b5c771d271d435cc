package wmamqp_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Features D4 and D5: while the connection is gone Publish fails, without a panic; afterwards it succeeds, and nothing
// that it promised is missing.
func TestPublishThroughCuts(t *testing.T) {
	t.Parallel()
	if unraced(t) {
		return
	}
	b := newBroker(t)
	topic, proxy := b.queue(), b.proxy()
	p := b.publisher(func(c *wmamqp.PublisherConfig) {
		c.AMQP.Connection.AmqpURI, c.ConfirmTimeout = proxy.uri, 2*time.Second
	})
	stop := make(chan struct{})
	var confirmed, failed atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.Publish(topic, message.NewMessage(fmt.Sprintf("%d-%d", i, j), nil)); err != nil {
					failed.Add(1)
					time.Sleep(10 * time.Millisecond)
				} else {
					confirmed.Add(1)
				}
			}
		})
	}
	for range 3 {
		before, errorsBefore := confirmed.Load(), failed.Load()
		eventually(t, "messages are confirmed", func() bool { return confirmed.Load() > before+50 })
		proxy.Cut()
		eventually(t, "Publish fails", func() bool { return failed.Load() > errorsBefore+8 })
		proxy.Heal()
	}
	before := confirmed.Load()
	eventually(t, "messages are confirmed again", func() bool { return confirmed.Load() > before+50 })
	close(stop)
	all.Wait()
	if n := b.ready(topic); n < int(confirmed.Load()) {
		t.Errorf("%d messages, %d confirmed", n, confirmed.Load())
	}
}

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
