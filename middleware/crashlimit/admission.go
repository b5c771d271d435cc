package crashlimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slot is where a delivery is counted while it lasts.
type slot uint8

const (
	slotPlain  slot = iota // it began while nothing was marked
	slotShared             // beside others
	slotAlone              //  a suspect by itself
	slotAside              // it waits to learn what became of others
	slotNone               // it gave up waiting
)

// room holds the deliveries of a process: many, or a single suspect. Who waits is let in in order, so that nobody starves.
type admission struct {
	unmarked atomic.Int64
	suspects atomic.Int64 // that wait

	mu     sync.Mutex
	inside int
	taken  bool // by a suspect
	aside  int
	queue  []*waiter
	moved  time.Time // when somebody came or went
	shared map[mark]*share
}

// share is the one mark that the deliveries of a message in this process have at a time.
type share struct {
	visits  int
	written written
	removed chan struct{} // not nil while the last of them removes the mark
	decided chan struct{} // closed when the first of them goes on, or does not
	refused bool          // it does not
}

func (s *share) decide(err error) {
	s.refused = err != nil
	close(s.decided)
}

type waiter struct {
	alone bool
	slot  slot // when ready
	ready chan struct{}
}

// share takes part in the mark of a message. It reports whether this delivery is the first, which writes it.
func (a *admission) share(m mark) (s *share, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		s = a.shared[m]
		if s == nil {
			break
		}
		if s.removed == nil {
			s.visits++
			return s, false
		}
		removed := s.removed
		a.mu.Unlock()
		<-removed // a statement, whose time is bounded
		a.mu.Lock()
	}
	if a.shared == nil {
		a.shared = make(map[mark]*share)
	}
	s = &share{visits: 1, decided: make(chan struct{})}
	a.shared[m] = s
	return s, true
}

// part ends a delivery's share. The last one removes the mark.
func (a *admission) part(m mark, s *share, remove func(mark, written)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.visits--; s.visits > 0 {
		return
	}
	if s.written.delivery > 0 {
		s.removed = make(chan struct{})
		a.mu.Unlock()
		remove(m, s.written)
		a.mu.Lock()
		close(s.removed)
	}
	delete(a.shared, m)
}

// wrote notes the mark that a delivery wrote.
func (a *admission) wrote(s *share, w written) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.written = w
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
// returns. Where nobody comes or goes for patience, as when handlers wait for each other, the first in line goes in beside
// the others, and so does who has waited for half of the time that ctx has: the rest is the handler's.
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
			if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it had no time left when it came: that is for the handler to see
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

// line stands in line, and only then leaves the slot before: there is no moment at which nobody knows of the delivery.
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

// admit lets in who stands first in line, as long as there is room.
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

// push lets the first in line in, company or not, when nobody has come or gone for patience. It returns when to ask again.
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
		a.admit() // it may have stood in somebody's way
	}
	return w.slot
}

func (a *admission) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unmarked.Load() == 0 && a.inside == 0 && !a.taken && a.aside == 0 && len(a.queue) == 0
}
