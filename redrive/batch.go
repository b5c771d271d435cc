package redrive

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// batch is the letters that a drain has in hand, under one token.
type batch struct {
	renewing sync.Mutex // one renewal at a time

	mu    sync.Mutex              // guards what follows
	next  []letters.Taken         // not begun
	open  map[int64]letters.Taken // not settled
	lost  map[int64]struct{}      // those whose lease another has, or none
	until time.Time
}

func newBatch(taken []letters.Taken) *batch {
	b := &batch{next: taken, open: make(map[int64]letters.Taken), lost: make(map[int64]struct{}), until: taken[0].Until}
	for _, t := range taken {
		b.open[t.Seq] = t
	}
	return b
}

// begin returns the next letter.
func (b *batch) begin() (t letters.Taken, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) == 0 {
		return letters.Taken{}, false
	}
	t, b.next = b.next[0], b.next[1:]
	return t, true
}

// rest returns the letters that were not begun, for the last time: they are no longer part of the batch.
func (b *batch) rest() (rest []letters.Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.next = b.next, nil
	for _, t := range rest {
		delete(b.open, t.Seq)
	}
	return rest
}

// done says that the letter's lease is over, so that it is not renewed.
func (b *batch) done(t letters.Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, t.Seq)
}

// leases returns the letters whose leases are to be renewed.
func (b *batch) leases() []letters.Taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.open))
}

// renewed notes which of the letters still had their lease at the renewal.
func (b *batch) renewed(of, still []letters.Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := make(map[int64]struct{}, len(of))
	for _, t := range of {
		lost[t.Seq] = struct{}{}
	}
	for _, t := range still {
		b.until = t.Until
		delete(lost, t.Seq)
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

func (b *batch) isLost(t letters.Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, lost := b.lost[t.Seq]
	return lost
}
