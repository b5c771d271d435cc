package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
)

// tenantKey is the metadata field that Target.Keyed takes keys from.
const tenantKey = "tenant"

// lanes is what handlers of many keys see.
type lanes struct {
	b       *bench
	mu      sync.Mutex
	busy    map[string]bool
	tries   map[string]int
	order   map[string][]string // by key, what succeeded
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
	l := &lanes{b: b, busy: map[string]bool{}, tries: map[string]int{}, order: map[string][]string{}}
	const n, keys = 300, 30
	want := map[string][]string{}
	bad := int32(0)
	for i := range n {
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
			bad++
		} else {
			want[key] = append(want[key], id)
		}
	}
	router := b.router()
	// Without a receiver, because SQLite has one writer at a time.
	b.channel(func(c *spillway.Config) { c.Idempotency, c.Receiver = nil, nil }).Attach(router)
	router.AddConsumerHandler(handlerName, b.topic, sub, l.handle)
	b.run(router)
	b.until("all are applied", func() bool { return len(b.effects()) == n-int(bad) })
	b.untilPlaced(bad)
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, ids := range want {
		if !slices.Equal(l.order[key], ids) {
			b.Errorf("%s: %v, and not %v", key, l.order[key], ids)
		}
	}
	if l.most < 4 {
		b.Errorf("%d keys were handled at the same time", l.most)
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
