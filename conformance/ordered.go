package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
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

// tenantKey is the metadata field that Target.Keyed takes keys from.
const tenantKey = "tenant"

// lanes is what handlers of many keys see.
type lanes struct {
	b       *bench
	mu      sync.Mutex
	busy    map[string]bool
	tries   map[string]int
	order   map[string][]string // by key, what succeeded
	want    map[string][]string // and is to succeed
	bad     int32
	running int
	most    int
}

// Feature R15: the messages of a key are handled one by one, in order, through retries in place and dead letters, while
// those of other keys are handled at the same time.
func (b *bench) manyKeys() {
	if b.target.Keyed == nil {
		b.Skip("Target.Keyed is missing: the pub/sub has no order by key with many keys at a time")
	}
	pub, sub := b.target.Keyed(b.T, b.group)
	b.Cleanup(func() { _ = pub.Close() })
	const n, keys = 300, 30
	l := b.lanes()
	l.publish(pub, 0, n, keys)
	router := b.router()
	// Without a receiver, because SQLite has one writer at a time.
	b.channel(func(c *spillway.Config) { c.Idempotency, c.Receiver = nil, nil }).Attach(router)
	router.AddConsumerHandler(handlerName, b.topic, sub, l.handle)
	b.run(router)
	l.untilInOrder(n)
	if l.most < 4 {
		b.Errorf("%d keys were handled at the same time", l.most)
	}
}

func (b *bench) lanes() *lanes {
	return &lanes{b: b, busy: map[string]bool{}, tries: map[string]int{}, order: map[string][]string{},
		want: map[string][]string{}}
}

// publish publishes messages of keys in turn, some of them bad.
func (l *lanes) publish(pub message.Publisher, from, to, keys int) {
	b := l.b
	for i := from; i < to; i++ {
		key, id := fmt.Sprint("tenant-", i%keys), fmt.Sprint("good-", i)
		if i%19 == 0 {
			id = fmt.Sprint(badPrefix, i)
		}
		msg := newMessage(id)
		msg.Metadata.Set(tenantKey, key)
		if err := pub.Publish(b.topic, msg); err != nil {
			b.Fatal(err)
		}
		if strings.HasPrefix(id, badPrefix) {
			l.bad++
		} else {
			l.want[key] = append(l.want[key], id)
		}
	}
}

// untilInOrder waits for the ends of n messages, and checks the order of each key.
func (l *lanes) untilInOrder(n int) {
	b := l.b
	b.until("all are applied", func() bool { return len(b.effects()) == n-int(l.bad) })
	b.untilPlaced(l.bad)
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, ids := range l.want {
		if !slices.Equal(l.order[key], ids) {
			b.Errorf("%s: %v, and not %v", key, l.order[key], ids)
		}
	}
	for id, times := range b.effects() {
		if times != 1 {
			b.Errorf("%s took effect %d times", id, times)
		}
	}
}

// handle fails at every fifth message twice, and at bad ones for good.
func (l *lanes) handle(msg *message.Message) error {
	key := msg.Metadata.Get(tenantKey)
	l.mu.Lock()
	if l.busy[key] {
		l.b.Errorf("two of %s are handled at the same time", key)
	}
	l.busy[key] = true
	l.running++
	l.most = max(l.most, l.running)
	l.tries[msg.UUID]++
	tries, fails := l.tries[msg.UUID], msg.UUID[len(msg.UUID)-1]%5 == 0
	l.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy[key] = false
	l.running--
	switch {
	case strings.HasPrefix(msg.UUID, badPrefix):
		return classify.Permanent(errNever)
	case fails && tries < 3:
		return errNever
	}
	if !slices.Contains(l.order[key], msg.UUID) {
		l.order[key] = append(l.order[key], msg.UUID)
	}
	return l.b.apply(msg)
}
