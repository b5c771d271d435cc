package delay

import (
	"context"
	"sync"
	"time"
)

// bell wakes a relay when something is due before it wanted to look again. It knows when, and not what: nothing that is
// missed here is lost.
type bell struct {
	mu     sync.Mutex
	asleep bool
	until  time.Time // asleep: when to look. Awake: when the earliest is due that the last look may have missed, or zero
	rung   chan struct{}
}

func newBell() *bell { return &bell{rung: make(chan struct{}, 1)} }

// look comes before the database is asked: what rings from now on counts in the next sleep.
func (b *bell) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

func (b *bell) ring(due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() && !due.Before(b.until) {
		return
	}
	b.until = due
	if b.asleep {
		select {
		case b.rung <- struct{}{}:
		default: // it is on its way already
		}
	}
}

// sleep waits for d, or until something is due that rang since look, or for the end of ctx.
func (b *bell) sleep(ctx context.Context, d time.Duration) {
	b.mu.Lock()
	if until := time.Now().Add(d); b.until.IsZero() || until.Before(b.until) {
		b.until = until
	}
	b.asleep = true
	timer := time.NewTimer(time.Until(b.until))
	b.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-b.rung:
			b.mu.Lock()
			timer.Reset(time.Until(b.until))
			b.mu.Unlock()
			continue
		}
		b.mu.Lock()
		b.asleep = false
		b.mu.Unlock()
		return
	}
}

// bells are those of a store's relays.
type bells struct {
	mu  sync.Mutex
	all map[*bell]struct{}
}

// hang adds a bell and returns what takes it away.
func (b *bells) hang(one *bell) (away func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = make(map[*bell]struct{})
	}
	b.all[one] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, one)
	}
}

func (b *bells) ring(due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.all {
		one.ring(due)
	}
}
