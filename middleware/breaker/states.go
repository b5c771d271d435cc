package breaker

import "time"

// state is what a circuit does with messages. Its methods are called with the circuit's lock held.
type state interface {
	name() State
	// admit reports whether one more attempt may begin now, and whether it is a probe.
	admit(c *circuit, now time.Time) (ok, probe bool)
	// failed decides what becomes of a message whose attempt began in this state, or before it if that is stale.
	failed(c *circuit, f *failure, stale bool, now time.Time) decision
	// succeeded notes a success of an attempt that began in this state.
	succeeded(c *circuit, p *passage, now time.Time)
	// released notes that an attempt that began in this state ended, and proves nothing. The next probe is at once or
	// when it is due.
	released(c *circuit, probe, atOnce bool, now time.Time)
	// tick does what is due.
	tick(c *circuit, now time.Time)
}

// closed lets all messages pass.
type closed struct{}

func (*closed) name() State { return Closed }

func (*closed) admit(*circuit, time.Time) (ok, probe bool) { return true, false }

func (*closed) failed(c *circuit, f *failure, stale bool, now time.Time) decision {
	if stale { // it began before an outage that is over
		c.witness(f, now)
		return keep
	}
	return c.mayOpen(f, now)
}

func (*closed) succeeded(c *circuit, p *passage, _ time.Time) {
	c.passed(p.of)
}

func (*closed) released(*circuit, bool, bool, time.Time) {}

// tick ends the trouble when nothing has failed for a window and something succeeded, or nothing came for long.
func (*closed) tick(c *circuit, now time.Time) {
	quiet, window := now.Sub(c.failedAt), c.breaker.config.Window
	if c.pausing == 0 && quiet >= window && (c.passes || quiet >= calm) {
		c.calmDown()
	} else {
		c.arm(now.Add(max(window-quiet, window/4)), now)
	}
}

// open holds all messages until the next probe is due.
type open struct{ due time.Time }

func (*open) name() State { return Open }

func (o *open) admit(c *circuit, now time.Time) (ok, probe bool) {
	o.tick(c, now) // which can close it
	if c.state != state(o) {
		return c.state.name() == Closed, false
	}
	if c.queue.Len() > 0 || now.Before(o.due) {
		return false, false
	}
	c.probe(now)
	return true, true
}

func (*open) failed(c *circuit, f *failure, _ bool, now time.Time) decision {
	c.witness(f, now)
	return keep
}

func (*open) succeeded(c *circuit, p *passage, now time.Time) { c.isBack(p, now) }

func (*open) released(*circuit, bool, bool, time.Time) {}

func (o *open) tick(c *circuit, now time.Time) {
	switch {
	case now.Before(o.due):
		c.arm(o.due, now)
	case c.queue.Len() > 0:
		c.probe(now)
		c.release(true)
	case now.Before(o.due.Add(calm)) || c.shared.open || c.breaker.freezeOf(c.handler) != nil:
		c.openValves() // the next message that comes is the probe
		c.arm(now.Add(calm), now)
	default: // no message came for long: nothing says that the downstream is still unavailable
		c.close(now)
	}
}

// halfOpen holds all messages but one, the probe.
type halfOpen struct{ began time.Time }

func (*halfOpen) name() State { return HalfOpen }

func (*halfOpen) admit(*circuit, time.Time) (ok, probe bool) { return false, false }

func (*halfOpen) failed(c *circuit, f *failure, stale bool, now time.Time) decision {
	c.witness(f, now)
	if !f.probe || stale {
		return keep
	}
	return c.probeFailed(f, now)
}

func (*halfOpen) succeeded(c *circuit, p *passage, now time.Time) { c.isBack(p, now) }

func (*halfOpen) released(c *circuit, probe, atOnce bool, now time.Time) {
	if !probe {
		return
	}
	due := now
	if !atOnce {
		due = now.Add(c.wait)
	}
	c.probeAt(due, now)
}

func (h *halfOpen) tick(c *circuit, now time.Time) {
	if lease := h.began.Add(probeLease); now.Before(lease) {
		c.arm(lease, now)
	} else {
		c.probeAt(now, now) // the probe hangs
	}
}

const (
	// rampStep is how long one allowance lasts. Each next allowance is twice as large.
	rampStep = 250 * time.Millisecond
	// maxDoublings bounds the ramp.
	maxDoublings = 12
	// minSteps is the number of steps before a ramp may end.
	minSteps = 3
)

// ramping lets 1, 2, 4 and so on messages pass.
type ramping struct {
	step, used int
	until      time.Time // the end of this step
}

func (*ramping) name() State { return Ramping }

func (r *ramping) admit(c *circuit, _ time.Time) (ok, probe bool) {
	if c.queue.Len() > 0 || r.used >= 1<<r.step {
		return false, false
	}
	r.used++
	return true, false
}

func (r *ramping) failed(c *circuit, f *failure, stale bool, now time.Time) decision {
	if stale {
		return keep // it began before the downstream was back
	}
	return c.mayOpen(f, now)
}

func (*ramping) succeeded(c *circuit, p *passage, _ time.Time) { c.passed(p.of) }

func (*ramping) released(*circuit, bool, bool, time.Time) {}

// tick goes on with the ramp at the end of a step.
func (r *ramping) tick(c *circuit, now time.Time) {
	switch {
	case now.Before(r.until):
		c.arm(r.until, now)
	case c.queue.Len() == 0 && r.step >= minSteps, r.step >= maxDoublings:
		c.close(now)
	default:
		*r = ramping{step: r.step + 1, until: now.Add(rampStep)}
		r.let(c, now)
	}
}

// let lets messages of the queue go on, as many as the step allows.
func (r *ramping) let(c *circuit, now time.Time) {
	for r.used < 1<<r.step && c.release(false) {
		r.used++
	}
	c.arm(r.until, now)
}
