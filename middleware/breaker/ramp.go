package breaker

import "time"

const (
	// rampStep is how long one allowance lasts. Each next allowance is twice as large.
	rampStep = 250 * time.Millisecond
	// maxDoublings bounds the ramp.
	maxDoublings = 12
	// minRamp is the number of messages that succeed, or steps, before a ramp may end.
	minRamp = 3
)

// ramp lets 1, 2, 4 and so on messages pass, and waits for outcomes before it lets more pass.
type ramp struct {
	step      int
	began     time.Time // this step
	until     time.Time // the end of this step
	allowance int
	used      int
	ended     int  // attempts that ended in this step
	passed    int  // successes in the ramp
	bound     bool // a message had to wait in this step
}

func (s *cell) beginRamp(now time.Time) {
	s.become(Ramping, now)
	s.ramp = ramp{allowance: 1, began: now, until: now.Add(rampStep)}
	s.letGo(1)
	s.openValves()
	s.arm(s.ramp.until, now)
}

// admit reports whether one more message may pass now.
func (r *ramp) admit() bool {
	if r.used >= r.allowance {
		r.bound = true
		return false
	}
	r.used++
	return true
}

// climb goes on with the ramp at the end of a step.
func (s *cell) climb(now time.Time) {
	r := &s.ramp
	bound := r.bound || s.queue.Len() > 0
	switch {
	case r.used > 0 && r.ended == 0 && now.Sub(r.began) < s.breaker.config.MaxProbe: // handlers are slow, or they hang
		r.until = now.Add(rampStep)
		s.arm(r.until, now)
		return
	case !bound && (r.passed >= minRamp || r.step >= minRamp), r.step >= maxDoublings:
		s.close(now)
		return
	}
	*r = ramp{step: r.step + 1, allowance: 2 * r.allowance, began: now, until: now.Add(rampStep), passed: r.passed}
	s.letGo(r.allowance)
	s.arm(r.until, now)
}
