package breaker

import (
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

// failed notes a failure of p's attempt, and decides what becomes of its message.
func (s *cell) failed(p *call, verdict classify.Verdict, err error, kind string, now time.Time) decision {
	s.trouble(now)
	s.quick.note(p.c.ID())
	d := s.doubtOf(verdict, kind, now)
	if s.ofNoMeaning(p, d, now) {
		return s.doubted(p, d, now)
	}
	probe, stale := p.probe, p.stale(s)
	p.probe = false
	if s.state == Ramping && !stale {
		s.ramp.ended++
	}
	if stale && s.state == Ramping {
		return keep // it began before the downstream was back
	}
	config := &s.breaker.config
	if stale || s.state == Open || s.state == HalfOpen {
		s.window.note(p.of, verdict, config.Window, s.state == Ramping, now)
		s.confirmed = s.confirmed || s.window.distinct >= minWitnesses
		if !probe || stale {
			return keep
		}
		return s.probeFailed(p, verdict, err, d, now)
	}
	blamed := s.window.note(p.of, verdict, config.Window, s.state == Ramping, now)
	if now.Sub(s.sharedAt) > calm {
		s.flaps = 0
	}
	if reason := s.window.reason(s.bar(now), now); reason != "" && (!blamed || reason == ReasonNothing) {
		s.open(reason, err, verdict, d, now)
		if blamed {
			return pass
		}
		return keep
	}
	if verdict.Away && !blamed && s.window.mixed(true) == 0 && !(now.Before(s.loneUntil) && s.window.distinct == 1) {
		return pause
	}
	return pass
}

// probeFailed goes on with the outage. If too few messages say away, the message goes on its way.
func (s *cell) probeFailed(p *call, verdict classify.Verdict, err error, d *doubt, now time.Time) decision {
	s.cause = err
	s.shared.open = false // this instance knows by itself
	s.become(Open, now)
	s.heldBy(d, now)
	if d != nil { // its time runs
		s.next(verdict, now)
		return keep
	}
	mixed, patience := s.window.mixed(true) > 0, s.breaker.config.Doubt
	if mixed {
		patience = min(patience, s.breaker.config.Window)
	}
	if (!s.confirmed || mixed) && now.Sub(s.unproven) >= patience {
		if (p.later || mixed) && s.maySacrifice(p.of, mixed) {
			if !mixed {
				s.unproven = now
			}
			s.due = now
			s.tick(now)
			if p.later {
				return nextStage
			}
			return unheld
		}
		if !s.named && !s.confirmed {
			s.named = true
			p.name = true
		}
	}
	s.next(verdict, now)
	return keep
}

// maySacrifice reports whether a message may go on in this outage, counted. The same message may go on again.
func (s *cell) maySacrifice(of recent.Message, mixed bool) bool {
	most := maxSacrificed
	if mixed {
		most = maxMixedSacrificed
	}
	switch {
	case slices.Contains(s.sacrificed, of):
		return true
	case len(s.sacrificed) >= most:
		return false
	}
	s.sacrificed = append(s.sacrificed, of)
	s.heldOut = recent.Message{} // it had its chance
	return true
}

// succeeded notes a success of p's attempt.
func (s *cell) succeeded(p *call, now time.Time) {
	stale := p.stale(s)
	p.probe = false
	if stale && s.state != Closed {
		return
	}
	config := &s.breaker.config
	switch s.state {
	case Open, HalfOpen:
		s.trust(now)
		if !s.confirmed && !s.window.failedInRun(p.of) && !s.excuse() {
			s.loneUntil = now.Add(calm)
		}
		s.window.succeeded(p.of, true)
		s.window.newRun(now)
		s.window.begin(now)
		if s.breaker.sharing != nil {
			s.shared.prove(now)
		}
		s.beginRamp(now)
	case Ramping:
		s.trust(now)
		s.window.succeeded(p.of, false)
		s.ramp.ended++
		s.ramp.passed++
	case Closed:
		s.trust(now)
		s.window.succeeded(p.of, false)
		if s.pausing == 0 && now.Sub(s.failedAt) > config.Window {
			s.calmDown()
		}
	}
}

// endHold notes that p's message is requeued because it was held for long.
func (s *cell) endHold(p *call) {
	if s.window.failedInRun(p.of) {
		s.heldOut = p.of
	}
}

// excuse reports whether the message that failed alone could not have been the one that succeeds: its hold ended
// before. It is to blame if that happens to the same message again.
func (s *cell) excuse() bool {
	of := s.heldOut
	s.heldOut = recent.Message{}
	if of == (recent.Message{}) || of == s.excused {
		return false
	}
	s.excused = of
	return true
}

// released notes that p's attempt proves nothing. If it was the probe, the next message is, at once or when it is due.
func (s *cell) released(p *call, atOnce bool, now time.Time) {
	probe, stale := p.probe, p.stale(s)
	p.probe = false
	if stale {
		return
	}
	switch {
	case s.state == Ramping:
		s.ramp.ended++
	case probe && s.state == HalfOpen:
		s.become(Open, now)
		if s.due = now; !atOnce {
			s.due = now.Add(s.wait)
		}
		s.tick(now)
	}
}
