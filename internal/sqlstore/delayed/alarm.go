package delayed

import (
	"context"
	"sync"
	"time"
)

// alarm wakes a relay if a message is due before the relay meant to look again. It knows when, and not which: a message
// that is missed here is found by the next look.
type alarm struct {
	mu     sync.Mutex
	asleep bool
	// asleep: when to look. Awake: when the earliest is due that the last look may have missed, or zero
	until time.Time
	wake  chan struct{}
}

func newAlarm() *alarm { return &alarm{wake: make(chan struct{}, 1)} }

// reset comes before the database is asked: what is brought forward from now on counts in the next sleep.
func (a *alarm) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Time{}
}

// bringForward makes the alarm go off when a message is due, if that is earlier.
func (a *alarm) bringForward(due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.until.IsZero() && !due.Before(a.until) {
		return
	}
	a.until = due
	if a.asleep {
		select {
		case a.wake <- struct{}{}:
		default: // it is on its way already
		}
	}
}

// sleep waits for d, or until a message is due that was announced since reset, or for the end of ctx.
func (a *alarm) sleep(ctx context.Context, d time.Duration) {
	a.mu.Lock()
	if until := time.Now().Add(d); a.until.IsZero() || until.Before(a.until) {
		a.until = until
	}
	a.asleep = true
	timer := time.NewTimer(time.Until(a.until))
	a.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.wake:
			a.mu.Lock()
			timer.Reset(time.Until(a.until))
			a.mu.Unlock()
			continue
		}
		a.mu.Lock()
		a.asleep = false
		a.mu.Unlock()
		return
	}
}

// alarms are those of a store's relays in this process.
type alarms struct {
	mu  sync.Mutex
	all map[*alarm]struct{}
}

// add returns what takes the alarm away.
func (a *alarms) add(one *alarm) (away func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[*alarm]struct{})
	}
	a.all[one] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.all, one)
	}
}

func (a *alarms) bringForward(due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for one := range a.all {
		one.bringForward(due)
	}
}
