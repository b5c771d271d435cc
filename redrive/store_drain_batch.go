package redrive

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// batch is the letters that a drain has in hand, under one token.
type batch struct {
	token string

	renewing sync.Mutex // one renewal at a time

	mu    sync.Mutex // guards what follows
	next  []Taken    // not begun
	open  map[int64]struct{}
	lost  map[int64]struct{} // those of open whose lease another has, or none
	until time.Time
}

func newBatch(letters []Taken) *batch {
	b := &batch{token: letters[0].Token, next: letters, open: make(map[int64]struct{}), lost: make(map[int64]struct{}), until: letters[0].Until}
	for _, t := range letters {
		b.open[t.Seq] = struct{}{}
	}
	return b
}

// begin returns the next letter.
func (b *batch) begin() (t Taken, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) == 0 {
		return Taken{}, false
	}
	t, b.next = b.next[0], b.next[1:]
	return t, true
}

// rest returns the letters that were not begun, for the last time: they are no longer part of the batch.
func (b *batch) rest() (rest []Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.next = b.next, nil
	for _, t := range rest {
		delete(b.open, t.Seq)
	}
	return rest
}

// done says that the letter's lease is over, so that it is not renewed.
func (b *batch) done(t Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, t.Seq)
}

// seqs returns the letters whose leases are to be renewed, in the order of Seq, in which transactions lock them.
func (b *batch) seqs() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.open))
}

// renewed notes which of seqs the token held at the renewal.
func (b *batch) renewed(seqs []int64, held map[int64]bool, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	for _, seq := range seqs {
		if _, open := b.open[seq]; open && !held[seq] {
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

func (b *batch) isLost(t Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, lost := b.lost[t.Seq]
	return lost
}
