package breaker

import (
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// maxKinds is the number of kinds of errors whose time a cell counts. Further kinds share one.
const maxKinds = 8

// doubt is what is known of a kind of error that does not say away. Such errors can be the messages' own, so a kind may
// hold the messages of a cell for Config.Doubt in all. After that it says nothing about other messages.
type doubt struct {
	kind   string
	spent  time.Duration // for which errors of the kind kept the cell open
	over   bool          // the time is used up
	latest time.Time     // failure
	passed int           // successes since then
	among  int           // how often a success came between two failures
}

// doubtOf returns what is known of the kind of an error, or nil if the error says away.
func (s *cell) doubtOf(verdict classify.Verdict, kind string, now time.Time) *doubt {
	if verdict.Away {
		s.awayAt = now
		return nil
	}
	d := s.doubts[kind]
	if d == nil && len(s.doubts) >= maxKinds {
		kind = "(others)"
		d = s.doubts[kind]
	}
	if d == nil {
		if s.doubts == nil {
			s.doubts = make(map[string]*doubt)
		}
		d = &doubt{kind: kind}
		s.doubts[kind] = d
	}
	if d.passed > 0 {
		d.among++
	}
	d.latest, d.passed = now, 0
	return d
}

// heldBy notes what keeps the cell open from now on: errors of a kind, or nil for errors that say away.
func (s *cell) heldBy(d *doubt, now time.Time) {
	if s.holder != nil && (s.state == Open || s.state == HalfOpen) {
		s.holder.spent += now.Sub(s.holding)
	}
	s.holder, s.holding = d, now
}

// rest returns how long errors of a kind may still hold the cell. That is not long where messages fail with it among
// others that succeed: perhaps all that wait are of those.
func (s *cell) rest(d *doubt, now time.Time) time.Duration {
	config := &s.breaker.config
	rest := config.Doubt - d.spent
	if d.among >= minMixed {
		rest = min(config.Doubt, config.Window) - d.spent
	}
	if s.holder == d && (s.state == Open || s.state == HalfOpen) {
		rest -= now.Sub(s.holding)
	}
	return rest
}

// ofNoMeaning reports whether a failure of p's message says nothing about other messages, because errors of its kind
// have held the cell for long enough. While errors say away, it counts all the same if its message said so itself: an
// outage has many errors.
func (s *cell) ofNoMeaning(p *call, d *doubt, now time.Time) bool {
	if d == nil || !d.over && s.rest(d, now) > 0 {
		return false
	}
	return !s.saysAway(now) || !s.window.saidAway(p.of)
}

// saysAway reports whether an error said away lately.
func (s *cell) saysAway(now time.Time) bool {
	return !s.awayAt.IsZero() && now.Sub(s.awayAt) <= s.breaker.config.Doubt
}

// doubted lets p's message go on as without a breaker. If no error says away, all messages that wait go on too.
func (s *cell) doubted(p *call, d *doubt, now time.Time) decision {
	s.released(p, true, now)
	if !d.over {
		d.over = true
		p.gaveUp = d.kind
	}
	if (s.state == Open || s.state == HalfOpen) && !s.saysAway(now) {
		s.shared.open, s.shared.until = false, now.Add(calm) // that others find the same says no more
		s.window.newRun(now)
		s.window.begin(now)
		s.close(now)
	}
	return doubtful
}

// trust gives the kinds of errors their time back that did not come among as many successes as failures in a row would
// open the breaker, or for a whole window.
func (s *cell) trust(now time.Time) {
	s.trustBy(1)
	for kind, d := range s.doubts {
		if now.Sub(d.latest) > s.breaker.config.Window {
			s.clear(kind, d)
		}
	}
}

// trustBy counts n successes for each kind.
func (s *cell) trustBy(n uint64) {
	for kind, d := range s.doubts {
		if d.passed += int(n); d.passed >= s.breaker.config.MinMessages {
			s.clear(kind, d)
		}
	}
}

func (s *cell) clear(kind string, d *doubt) {
	if s.holder == d {
		s.holder = nil
	}
	delete(s.doubts, kind)
}
