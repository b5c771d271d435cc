package crashlimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// place is where a delivery is counted while it lasts.
type place uint8

const (
	plain    place = iota // it began while nothing was marked
	ordinary              // beside others
	alone                 // a suspect by itself
	aside                 // it waits to learn what became of others
	nowhere               // it gave up waiting
)

// room holds the deliveries of a process: many, or a single suspect. Who waits is let in in order, so that nobody starves.
type room struct {
	plain    atomic.Int64
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
	place place // when ready
	ready chan struct{}
}

// share takes part in the mark of a message. It reports whether this delivery is the first, which writes it.
func (r *room) share(m mark) (s *share, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		s = r.shared[m]
		if s == nil {
			break
		}
		if s.removed == nil {
			s.visits++
			return s, false
		}
		removed := s.removed
		r.mu.Unlock()
		<-removed // a statement, whose time is bounded
		r.mu.Lock()
	}
	if r.shared == nil {
		r.shared = make(map[mark]*share)
	}
	s = &share{visits: 1, decided: make(chan struct{})}
	r.shared[m] = s
	return s, true
}

// part ends a delivery's share. The last one removes the mark.
func (r *room) part(m mark, s *share, remove func(mark, written)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.visits--; s.visits > 0 {
		return
	}
	if s.written.delivery > 0 {
		s.removed = make(chan struct{})
		r.mu.Unlock()
		remove(m, s.written)
		r.mu.Lock()
		close(s.removed)
	}
	delete(r.shared, m)
}

// wrote notes the mark that a delivery wrote.
func (r *room) wrote(s *share, w written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.written = w
}

// wait leaves a place to wait aside, in no other delivery's way.
func (r *room) wait(from place) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside++
	r.vacate(from)
	return aside
}

// move leaves a place for one beside others or alone, and returns which it got. It waits until ctx ends, whose error it
// returns. Where nobody comes or goes for patience, as when handlers wait for each other, the first in line goes in beside
// the others, and so does who has waited for half of the time that ctx has: the rest is the handler's.
func (r *room) move(ctx context.Context, from place, suspect bool, patience time.Duration) (place, error) {
	w := r.line(from, suspect)
	select {
	case <-w.ready:
		return w.place, nil
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
			return w.place, nil
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it had no time left when it came: that is for the handler to see
				return r.giveUp(w, ordinary), nil
			}
			return r.giveUp(w, nowhere), ctx.Err()
		case <-half:
			return r.giveUp(w, ordinary), nil
		case <-stalled.C:
			stalled.Reset(r.push(patience))
		}
	}
}

// line stands in line, and only then leaves the place before: there is no moment at which nobody knows of the delivery.
func (r *room) line(from place, suspect bool) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &waiter{alone: suspect, ready: make(chan struct{})}
	r.queue = append(r.queue, w)
	if suspect {
		r.suspects.Add(1)
	}
	r.vacate(from)
	return w
}

// leave gives a place back. The usual case takes no lock.
func (r *room) leave(from place) {
	if from == plain {
		if r.plain.Add(-1) != 0 || r.suspects.Load() == 0 {
			return
		}
		from = nowhere
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vacate(from)
}

func (r *room) vacate(from place) {
	switch from {
	case plain:
		r.plain.Add(-1)
	case ordinary:
		r.inside--
	case alone:
		r.taken = false
	case aside:
		r.aside--
	}
	r.moved = time.Now()
	r.admit()
}

// admit lets in who stands first in line, as long as there is room.
func (r *room) admit() {
	for len(r.queue) > 0 && !r.taken {
		first := r.queue[0]
		if first.alone && (r.inside > 0 || r.plain.Load() > 0) {
			return
		}
		got := ordinary
		if first.alone {
			got = alone
		}
		r.let(0, got)
	}
}

func (r *room) let(i int, got place) {
	w := r.queue[i]
	r.queue = slices.Delete(r.queue, i, i+1)
	if w.alone {
		r.suspects.Add(-1)
	}
	switch got {
	case ordinary:
		r.inside++
	case alone:
		r.taken = true
	}
	r.moved = time.Now()
	w.place = got
	close(w.ready)
}

// push lets the first in line in, company or not, when nobody has come or gone for patience. It returns when to ask again.
func (r *room) push(patience time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rest := patience - time.Since(r.moved); rest > 0 {
		return rest
	}
	if len(r.queue) > 0 {
		r.let(0, ordinary)
		r.admit()
	}
	return patience
}

// giveUp leaves the line for a place, or returns the one that was given meanwhile.
func (r *room) giveUp(w *waiter, to place) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.queue, w); i >= 0 {
		r.let(i, to)
		r.admit() // it may have stood in somebody's way
	}
	return w.place
}

func (r *room) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plain.Load() == 0 && r.inside == 0 && !r.taken && r.aside == 0 && len(r.queue) == 0
}
