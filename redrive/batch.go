package redrive

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// claim is letters under one lease.
type claim = inside.Claim[letters.Letter]

// batch is the letters that a drain has in hand.
type batch struct {
	claim    claim
	renewing sync.Mutex     // one renewal at a time
	marking  sync.WaitGroup // letters that are published, and not marked yet
	ended    chan struct{}
	renewals sync.WaitGroup // what renews the leases until the end

	mu    sync.Mutex                // guards what follows
	next  []*letters.Letter         // not begun
	open  map[int64]*letters.Letter // not settled
	lost  map[int64]struct{}        // those whose lease another has, or none
	until time.Time
}

func newBatch(c claim) *batch {
	b := &batch{claim: c, ended: make(chan struct{}), next: c.Letters, open: make(map[int64]*letters.Letter),
		lost: make(map[int64]struct{}), until: c.Until}
	for _, l := range c.Letters {
		b.open[l.Seq] = l
	}
	return b
}

// end ends the renewals: all letters are settled, or given back.
func (b *batch) end() {
	close(b.ended)
	b.renewals.Wait()
}

// begin returns the next letter.
func (b *batch) begin() (l *letters.Letter, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) == 0 {
		return nil, false
	}
	l, b.next = b.next[0], b.next[1:]
	return l, true
}

// rest returns the letters that were not begun, for the last time: they are no longer part of the batch.
func (b *batch) rest() (rest []*letters.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.next = b.next, nil
	for _, t := range rest {
		delete(b.open, t.Seq)
	}
	return rest
}

// done says that the letter's lease is over, so that it is not renewed.
func (b *batch) done(l *letters.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, l.Seq)
}

// leases returns the letters whose leases are to be renewed.
func (b *batch) leases() []*letters.Letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.open))
}

// renewed notes which of the letters still had their lease at the renewal.
func (b *batch) renewed(of []*letters.Letter, still claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := make(map[int64]struct{}, len(of))
	for _, l := range of {
		lost[l.Seq] = struct{}{}
	}
	for _, l := range still.Letters {
		b.until = still.Until
		delete(lost, l.Seq)
	}
	for seq := range lost {
		if _, open := b.open[seq]; open {
			b.lost[seq] = struct{}{}
			delete(b.open, seq)
		}
	}
}

func (b *batch) leasedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

func (b *batch) isLost(l *letters.Letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, lost := b.lost[l.Seq]
	return lost
}
