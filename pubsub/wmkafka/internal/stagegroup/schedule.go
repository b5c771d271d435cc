package stagegroup

import (
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/timing/due"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// part is a partition. All of it is guarded by the session's lock.
type part struct {
	session   *session
	claim     *claim
	partition int32
	leader    int32
	next      int64 // the offset to fetch
	fetchSize int32
	records   []*flight // in order, from the first unacked one on
	taken     int       // those of records that are, or were, in the window; the backlog is behind them
	waiting   []*flight // in the window, and not handled: not due, or nacked
	running   int       // in the window, and handled
	bytes     int       // of the backlog
	held      int       // bytes of what was taken from it, and is unacked
	full      bool      // it had no room for more, and there may be more
	committed int64
	due       time.Time // when the next record of the window is; zero for none
}

// mark returns the offset behind all that is done.
func (p *part) mark() int64 {
	if len(p.records) > 0 {
		return p.records[0].record.Offset
	}
	return p.next
}

// far is later than anything is due.
const far = 24 * time.Hour

// schedule hands over what is due.
func (s *session) schedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := time.Now()
		s.scheduled = now.Add(far)
		for _, c := range s.claims {
			for _, p := range c.parts {
				s.launch(p, now)
				if !p.due.IsZero() && p.due.Before(s.scheduled) {
					s.scheduled = p.due
				}
			}
		}
		planned := s.scheduled
		timer.Reset(planned.Sub(now))
		s.mu.Unlock()
		select {
		case <-timer.C:
			for late := time.Since(planned) > asleep; late && !s.isMember(); {
				if !wait.For(s.ctx, fetchErrorPause) {
					return
				}
			}
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

// launch hands over what is due in the window of a partition. The session is locked.
func (s *session) launch(p *part, now time.Time) {
	p.due = time.Time{}
	if p.claim.taking.Err() != nil || s.ctx.Err() != nil {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(f *flight) bool { return s.begin(f, now) })
	for p.hasNext(s.config) {
		f := p.records[p.taken]
		p.taken++
		p.bytes -= f.size
		p.held += f.size
		f.msg = s.config.Read(f.record)
		s.attempt(f)
		if f.until = s.until(f); !s.begin(f, now) {
			p.waiting = append(p.waiting, f)
		}
	}
}

// hasNext reports whether the next record may enter the window. Messages that are placed elsewhere, or acked, leave
// room in it, but hold up the mark behind them: all of them can be handled again after a crash.
func (p *part) hasNext(c *Config) bool {
	return p.taken < len(p.records) && p.running+len(p.waiting) < c.InFlight &&
		p.taken < max(c.InFlight, c.MaxPlacing) &&
		p.held < c.MaxPlacingBytes
}

// begin hands a message over if it is due, and there is room. The session is locked.
func (s *session) begin(f *flight, now time.Time) bool {
	p := f.of
	switch {
	case f.until.After(now):
		if p.due.IsZero() || f.until.Before(p.due) {
			p.due = f.until
		}
		return false
	case p.running >= s.config.InFlight: // one that was nacked by what placed it
		return false
	}
	f.handled = true
	p.running++
	s.flights.Add(1)
	go s.fly(f, f.msg)
	return true
}

// attempt gives the message of a flight its context.
func (s *session) attempt(f *flight) {
	f.first = false
	ctx, cancel := s.config.Context(due.WithArrived(f.of.claim.ctx, f.arrived), f.record, f.of.claim.topic.Group, f)
	f.cancel = cancel
	f.msg.SetContext(ctx)
}

func (s *session) until(f *flight) (until time.Time) {
	safecall.Hook(s.config.Logger, "due.Stage.Until",
		func() { until = f.of.claim.topic.Stage.Until(f.msg, f.arrived) })
	return until
}

// look makes the scheduler look again, if a partition is due before it would. The session is locked.
func (s *session) look(p *part) {
	if p.due.IsZero() || !p.due.Before(s.scheduled) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
