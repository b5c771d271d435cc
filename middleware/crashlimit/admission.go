package crashlimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// slot is where a delivery is counted while it lasts.
type slot uint8

const (
	slotPlain  slot = iota // it began while nothing was marked
	slotShared             // beside others
	slotAlone              // a suspect by itself
	slotAside              // it waits to learn what became of others
	slotNone               // it gave up waiting
)

// admission lets the deliveries of a process in: many, or a single suspect. Those that wait are let in in their order,
// so that none waits for good.
type admission struct {
	unmarked atomic.Int64
	suspects atomic.Int64 // that wait

	mu     sync.Mutex
	inside int
	taken  bool // by a suspect
	aside  int
	queue  []*waiter
	moved  time.Time // when a delivery last came or went
	shared map[deliveries.Key]*share
}

type waiter struct {
	alone bool
	slot  slot // when ready
	ready chan struct{}
}

// wait leaves a slot to wait aside, in no other delivery's way.
func (a *admission) wait(from slot) slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aside++
	a.vacate(from)
	return slotAside
}

// move leaves a slot for one beside others or alone, and returns which it got. It waits until ctx ends, whose error it
// returns. If none comes or goes for patience, as when handlers wait for each other, the first in line goes in beside
// the others. So does a delivery that has waited for half of the time that ctx has: the rest is the handler's.
func (a *admission) move(ctx context.Context, from slot, suspect bool, patience time.Duration) (slot, error) {
	w := a.line(from, suspect)
	select {
	case <-w.ready:
		return w.slot, nil
	default:
	}
	stalled := time.NewTimer(patience)
	defer stalled.Stop()
	var half <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline) / 2)
		defer timer.Stop()
		half = timer.C
	}
	for {
		select {
		case <-w.ready:
			return w.slot, nil
		case <-ctx.Done():
			// it had no time left when it came: that is for the handler to see
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return a.giveUp(w, slotShared), nil
			}
			return a.giveUp(w, slotNone), ctx.Err()
		case <-half:
			return a.giveUp(w, slotShared), nil
		case <-stalled.C:
			stalled.Reset(a.push(patience))
		}
	}
}

// line stands in line, and only then leaves the slot before: there is no moment at which the delivery is counted
// nowhere.
func (a *admission) line(from slot, suspect bool) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &waiter{alone: suspect, ready: make(chan struct{})}
	a.queue = append(a.queue, w)
	if suspect {
		a.suspects.Add(1)
	}
	a.vacate(from)
	return w
}

// leave gives a slot back. The usual case takes no lock.
func (a *admission) leave(from slot) {
	if from == slotPlain {
		if a.unmarked.Add(-1) != 0 || a.suspects.Load() == 0 {
			return
		}
		from = slotNone
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vacate(from)
}

func (a *admission) vacate(from slot) {
	switch from {
	case slotPlain:
		a.unmarked.Add(-1)
	case slotShared:
		a.inside--
	case slotAlone:
		a.taken = false
	case slotAside:
		a.aside--
	}
	a.moved = time.Now()
	a.admit()
}

// admit lets in the first in line, as long as there is room for it.
func (a *admission) admit() {
	for len(a.queue) > 0 && !a.taken {
		first := a.queue[0]
		if first.alone && (a.inside > 0 || a.unmarked.Load() > 0) {
			return
		}
		got := slotShared
		if first.alone {
			got = slotAlone
		}
		a.let(0, got)
	}
}

func (a *admission) let(i int, got slot) {
	w := a.queue[i]
	a.queue = slices.Delete(a.queue, i, i+1)
	if w.alone {
		a.suspects.Add(-1)
	}
	switch got {
	case slotShared:
		a.inside++
	case slotAlone:
		a.taken = true
	}
	a.moved = time.Now()
	w.slot = got
	close(w.ready)
}

// push lets the first in line in, beside others or not, if none has come or gone for patience. It returns when to ask
// again.
func (a *admission) push(patience time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rest := patience - time.Since(a.moved); rest > 0 {
		return rest
	}
	if len(a.queue) > 0 {
		a.let(0, slotShared)
		a.admit()
	}
	return patience
}

// giveUp leaves the line for a slot, or returns the one that was given meanwhile.
func (a *admission) giveUp(w *waiter, to slot) slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.queue, w); i >= 0 {
		a.let(i, to)
		a.admit() // it may have stood in front of others
	}
	return w.slot
}

func (a *admission) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unmarked.Load() == 0 && a.inside == 0 && !a.taken && a.aside == 0 && len(a.queue) == 0
}
