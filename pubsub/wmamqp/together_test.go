package wmamqp_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Features D4 and D5: of many messages that callers publish at the same time on one channel, each is in its queue when
// Publish returns nil, and a missing queue is the error of its own messages alone, and names it. A closed publisher says
// so.
func TestPublishTogether(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	p := b.publisher(func(c *wmamqp.PublisherConfig) { *wmamqp.Channels(c), c.ConfirmTimeout = 1, patience })
	const n = 200
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			to := topic
			if i%7 == 0 {
				to += "-missing"
			}
			errs[i] = p.Publish(to, message.NewMessage(fmt.Sprint(i), make([]byte, 100)))
		})
	}
	all.Wait()
	want := 0
	for i, err := range errs {
		missing := i%7 == 0
		if !missing {
			want++
		}
		if missing {
			says(t, err, "returned the message", "default exchange", topic+"-missing", "NO_ROUTE")
		} else if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	messages := b.subscribe(b.subscriber(prefetch(50)), topic)
	ids := b.ack(messages, want)
	testkit.Check(t, len(slices.Compact(ids)) == want, "%d of %d messages came", len(slices.Compact(ids)), want)
	b.none(messages)
	b.closed("the publisher", p.Close())
	says(t, p.Publish(topic, message.NewMessage("id", nil)), "closed")
}

// Promise P1: when the connection is lost under many messages on one channel, each message whose Publish returned nil
// is in its queue.
func TestPublishTogetherConnectionLost(t *testing.T) {
	t.Parallel()
	if unraced(t) {
		return
	}
	b := newBroker(t)
	topic, proxy := b.queue("quorum"), b.proxy()
	p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Connection.AmqpURI, *wmamqp.Channels(c) = proxy.uri, 1 })
	var published list
	var all sync.WaitGroup
	cut := sync.OnceFunc(proxy.Cut)
	for caller := range 64 {
		all.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", caller, i)
				if p.Publish(topic, message.NewMessage(id, make([]byte, 100))) != nil {
					return
				}
				if published.add(id); i == 5 {
					cut()
				}
			}
		})
	}
	all.Wait()
	proxy.Heal()
	messages := b.subscribe(b.subscriber(prefetch(50)), topic)
	missing := map[string]bool{}
	for _, id := range published.get() {
		missing[id] = true
	}
	t.Logf("%d were published", len(missing))
	for len(missing) > 0 {
		msg := b.next(messages)
		acks(t, msg)
		delete(missing, msg.UUID)
	}
}
