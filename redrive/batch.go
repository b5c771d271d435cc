package redrive

import (
	"sync"

	"github.com/watermill-spillway/spillway/redrive/internal/lease"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// batch is the letters that a drain has in hand.
type batch struct {
	*lease.Lease
	marking sync.WaitGroup // letters that are published, and not marked yet

	mu   sync.Mutex
	next []*letters.Letter // not begun
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
	b.Done(rest...)
	return rest
}
