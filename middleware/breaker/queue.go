package breaker

import (
	"container/list"
	"context"
	"time"
)

// waiter is a message that is held in the breaker.
type waiter struct {
	p       *call
	element *list.Element // nil when it may go on
	goOn    chan struct{}
}

// join puts a message at the end of the queue. So those that are held try in turn.
func (s *cell) join(p *call) *waiter {
	w := &waiter{p: p, goOn: make(chan struct{})}
	w.element = s.queue.PushBack(w)
	return w
}

// await waits until w may go on. It reports false if ctx ended, or rest passed, before that. Call it without the lock.
func (s *cell) await(ctx context.Context, w *waiter, rest time.Duration) bool {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-w.goOn:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.lock()
	defer s.unlock()
	if w.element == nil {
		return true // at the last moment
	}
	s.queue.Remove(w.element)
	w.element = nil
	return false
}

// maxLooked bounds the search for a probe.
const maxLooked = 1000

// release lets the first message in the queue go on. It reports false if there is none. A probe is the first one that
// has not failed lately: where some messages are at fault themselves, those that wait longest are such messages.
func (s *cell) release(probe bool) bool {
	next := s.queue.Front()
	if next == nil {
		return false
	}
	for e, n := next, 0; probe && e != nil && n < maxLooked; e, n = e.Next(), n+1 {
		if s.window.messages.Get(e.Value.(*waiter).p.of) == nil {
			next = e
			break
		}
	}
	w := s.queue.Remove(next).(*waiter)
	w.element = nil
	w.p.begin(s, probe)
	close(w.goOn)
	return true
}

// letGo lets up to n messages of the queue go on.
func (s *cell) letGo(n int) {
	for ; n > 0 && s.release(false); n-- {
		s.ramp.used++
	}
}

// tick does what is due.
func (s *cell) tick(now time.Time) {
	switch s.state {
	case Open:
		switch {
		case now.Before(s.due):
			s.arm(s.due, now)
		case s.queue.Len() > 0:
			s.probe(now)
			s.release(true)
		case now.Before(s.due.Add(calm)) || s.shared.open || s.breaker.freezeOf(s.handler) != nil:
			s.openValves() // the next message that comes is the probe
			s.arm(now.Add(calm), now)
		default: // no message came for long: nothing says that the downstream is still away
			s.close(now)
		}
	case Closed:
		if s.troubled && !s.late && !now.Before(s.quiet()) {
			s.late = true
		}
		switch quiet := s.quiet(); {
		case !s.troubled:
		case now.Before(quiet):
			s.arm(quiet, now)
		case s.pausing > 0:
			s.arm(now.Add(calm), now)
		default:
			s.calmDown()
		}
	case HalfOpen:
		switch lease := s.probing.Add(probeLease); {
		case now.Before(lease):
			s.arm(lease, now)
		case s.release(true):
			s.probe(now)
		}
	case Ramping:
		if now.Before(s.ramp.until) {
			s.arm(s.ramp.until, now)
		} else {
			s.climb(now)
		}
	}
}

// probe notes that a probe begins.
func (s *cell) probe(now time.Time) {
	if s.state != HalfOpen {
		s.become(HalfOpen, now)
	}
	s.probing = now
	s.arm(now.Add(probeLease), now)
}

// arm has tick called at a time. One timer serves all messages of the cell.
func (s *cell) arm(at, now time.Time) {
	if s.timer != nil && s.timerFor.Equal(at) {
		return
	}
	s.disarm()
	s.timerFor = at
	s.timer = time.AfterFunc(at.Sub(now), s.onTimer)
}

func (s *cell) disarm() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *cell) onTimer() {
	s.lock()
	s.timer = nil
	s.tick(time.Now())
	s.unlock()
	s.breaker.tell()
}

// shut returns a channel that is closed when a subscription may take messages again.
func (s *cell) shut() <-chan struct{} {
	if s.reopen == nil {
		s.reopen = make(chan struct{})
	}
	return s.reopen
}

func (s *cell) openValves() {
	if s.reopen != nil {
		close(s.reopen)
		s.reopen = nil
	}
}
