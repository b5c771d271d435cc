package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
)

// Feature R13: with Ordered, messages of a key take effect in order although every fifth one fails twice, and waits
// with those behind it, beyond a restart. A pub/sub without an order is refused.
func (b *bench) orderedKeys() {
	if b.target.Ordered == nil {
		b.refusesOrder()
		return
	}
	const n, keys = 76, 4
	pub, sub := b.target.Ordered(b.T, b.group)
	l := b.lanes()
	l.publish(pub, 0, n/2, keys)
	stop := b.runOrdered(sub, l.handle)
	b.until("some are applied", func() bool { return len(b.effects()) > n/8 })
	stop()
	again, sub := b.target.Ordered(b.T, b.group)
	b.runOrdered(sub, l.handle)
	l.publish(again, n/2, n, keys) // a consumer of a queue learns with a message that it is the active one
	l.untilInOrder(n)
	for _, pub := range []message.Publisher{pub, again} {
		if err := pub.Close(); err != nil {
			b.Error(err)
		}
	}
}

func (b *bench) orderedChannel() *spillway.Channel {
	return b.channel(func(c *spillway.Config) {
		c.Ordered = &spillway.OrderedConfig{Delays: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}}
		c.Retry.Attempts = 1
	})
}

func (b *bench) runOrdered(sub message.Subscriber, handle message.NoPublishHandlerFunc) (stop func()) {
	router := b.router()
	b.orderedChannel().Attach(router)
	router.AddConsumerHandler(handlerName, b.topic, sub, handle)
	return b.run(router)
}

// refusesOrder checks that the router does not start, and why.
func (b *bench) refusesOrder() {
	router, sub := b.router(), b.target.Subscriber(b.T, b.group)
	defer func() { _ = sub.Close() }() // closing a router that never ran takes its time-out
	b.orderedChannel().Attach(router)
	router.AddConsumerHandler(handlerName, b.topic, sub, func(*message.Message) error { return nil })
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if err := router.Run(ctx); err == nil || !strings.Contains(err.Error(), "Config.Ordered") {
		b.Errorf("Ordered on a pub/sub without an order: %v", err)
	}
}
