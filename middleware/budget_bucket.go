package middleware

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// bucketSlots is the number of slots that a TTL is counted in. What happened in a slot is forgotten at once.
const bucketSlots = 10

// noteEvery is how many messages are handled before the clock is read to count them. It is a power of two.
const noteEvery = 64

// bucket is the budget for one kind of traffic. A further attempt is charged to the share of handled messages, or else
// to the floor. Each has its own count, so that a burst of traffic that is over does not eat the floor that is due now.
type bucket struct {
	handled atomic.Uint64 // messages, ever

	traffic string
	live    *bucket // whose messages count here too, or nil
	share   float64
	floor   int64 // further attempts in a TTL
	slot    time.Duration

	mu      sync.Mutex
	began   time.Time
	counted uint64 // of handled
	at      time.Time
	current int64 // number of the present slot, since began
	slots   [bucketSlots]tally
	sum     tally
}

// tally counts what happened in a slot, or in all.
type tally struct{ handled, onShare, onFloor int64 }

// withdrawal is what a further attempt was charged to.
type withdrawal struct {
	from  *bucket // nil if nothing was charged
	slot  int64
	share bool
}

func (b *bucket) init(of Budget, traffic string, live *bucket) {
	b.traffic, b.live, b.share = traffic, live, of.Share
	b.floor = int64(math.Round(of.PerSecond * of.TTL.Seconds()))
	if of.PerSecond > 0 {
		b.floor = max(b.floor, 1)
	}
	b.slot = of.TTL / bucketSlots
	b.began = time.Now()
	b.at = b.began
}

// deposit counts a handled message. It reads no clock but for one message of noteEvery.
func (b *bucket) deposit() {
	if b.handled.Add(1)%noteEvery == 0 {
		b.mu.Lock()
		b.advance(time.Now())
		b.mu.Unlock()
	}
}

// spent reports whether there is no further attempt now.
func (b *bucket) spent(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	return !b.sharesOne(now) && b.sum.onFloor >= b.floor
}

// sharesOne reports whether the share of handled messages has a further attempt. The caller holds mu, and has called
// advance.
func (b *bucket) sharesOne(now time.Time) bool {
	handled := b.sum.handled
	if b.live != nil {
		handled += b.live.handledLately(now)
	}
	return b.share*float64(handled)-float64(b.sum.onShare) >= 1
}

// withdraw charges a further attempt. It reports false if the budget is spent.
func (b *bucket) withdraw(now time.Time) (w withdrawal, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	slot := &b.slots[b.current%bucketSlots]
	switch {
	case b.sharesOne(now):
		slot.onShare++
		b.sum.onShare++
		return withdrawal{b, b.current, true}, true
	case b.sum.onFloor < b.floor:
		slot.onFloor++
		b.sum.onFloor++
		return withdrawal{b, b.current, false}, true
	}
	return withdrawal{}, false
}

// handledLately returns how many messages were handled in the last TTL.
func (b *bucket) handledLately(now time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	return b.sum.handled
}

// refund takes a withdrawal back, if it still counts.
func (w withdrawal) refund() {
	b := w.from
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current-w.slot >= bucketSlots {
		return
	}
	slot := &b.slots[w.slot%bucketSlots]
	if w.share {
		slot.onShare--
		b.sum.onShare--
		return
	}
	slot.onFloor--
	b.sum.onFloor--
}

// next returns how long it is until a slot is forgotten, and with it withdrawals of then.
func (b *bucket) next(now time.Time) time.Duration {
	return b.slot - now.Sub(b.began)%b.slot
}

// advance forgets slots that are over, and counts what was handled since it was called last. The caller holds mu.
func (b *bucket) advance(now time.Time) {
	if now.Before(b.at) { // another message read the clock later
		now = b.at
	}
	to := int64(now.Sub(b.began) / b.slot)
	for range min(to-b.current, bucketSlots) {
		b.current++
		b.forget(&b.slots[b.current%bucketSlots])
	}
	b.current = to
	handled := b.handled.Load()
	fresh := int64(handled - b.counted)
	// the latest is of now, and most are forgotten
	if all, since := b.slot*bucketSlots, now.Sub(b.at); since > all && fresh > 1 {
		fresh = 1 + int64(float64(fresh-1)*float64(all)/float64(since))
	}
	b.counted, b.at = handled, now
	b.slots[to%bucketSlots].handled += fresh
	b.sum.handled += fresh
}

func (b *bucket) forget(slot *tally) {
	b.sum.handled -= slot.handled
	b.sum.onShare -= slot.onShare
	b.sum.onFloor -= slot.onFloor
	*slot = tally{}
}
