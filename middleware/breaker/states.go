package breaker

import (
	"time"

	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// state is what a circuit does with messages. Its methods are called with the breaker's lock held.
type state interface {
	name() circuit.State
	// admit reports whether one more attempt may begin now, and whether it is a probe.
	admit(c *fuse, now time.Time) (ok, probe bool)
	// failed decides what becomes of a message whose attempt failed.
	failed(c *fuse, f *failure, now time.Time) decision
	// tick does what is due.
	tick(c *fuse, now time.Time)
}

// closed lets all messages pass.
type closed struct{}

func (*closed) name() circuit.State { return circuit.Closed }

func (*closed) admit(*fuse, time.Time) (ok, probe bool) { return true, false }

func (*closed) failed(c *fuse, f *failure, now time.Time) decision {
	if f.stale {
		return keep // it began before an outage that is over
	}
	return c.mayOpen(f, unavailableInARow, now)
}

// tick ends the trouble when nothing has failed for a window and something succeeded, or nothing came for long.
func (*closed) tick(c *fuse, now time.Time) {
	quiet, window := now.Sub(c.failedAt), c.breaker.config.Window
	if c.pausing == 0 && quiet >= window && (c.passes || quiet >= calm) {
		c.calmDown()
	} else {
		c.arm(now.Add(max(window-quiet, window/4)), now)
	}
}

// open holds all messages until the next probe is due.
type open struct{ due time.Time }

func (*open) name() circuit.State { return circuit.Open }

func (o *open) admit(c *fuse, now time.Time) (ok, probe bool) {
	o.tick(c, now) // which can close it
	if c.state != state(o) {
		return c.state.name() == circuit.Closed, false
	}
	if c.queue.Len() > 0 || now.Before(o.due) {
		return false, false
	}
	c.probe(now)
	return true, true
}

func (*open) failed(c *fuse, f *failure, now time.Time) decision {
	c.note(f, now)
	return keep
}

func (o *open) tick(c *fuse, now time.Time) {
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

func (*halfOpen) name() circuit.State { return circuit.HalfOpen }

func (*halfOpen) admit(*fuse, time.Time) (ok, probe bool) { return false, false }

func (*halfOpen) failed(c *fuse, f *failure, now time.Time) decision {
	c.note(f, now)
	if !f.probe || f.stale {
		return keep
	}
	return c.probeFailed(f, now)
}

func (h *halfOpen) tick(c *fuse, now time.Time) {
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

func (*ramping) name() circuit.State { return circuit.Ramping }

func (r *ramping) admit(c *fuse, _ time.Time) (ok, probe bool) {
	if c.queue.Len() > 0 || r.used >= 1<<r.step {
		return false, false
	}
	r.used++
	return true, false
}

// failed opens the circuit at once at the begin of a ramp: the downstream was unavailable a moment ago.
func (r *ramping) failed(c *fuse, f *failure, now time.Time) decision {
	if f.stale {
		return keep // it began before the downstream was back
	}
	if r.step < minSteps {
		return c.mayOpen(f, 1, now)
	}
	return c.mayOpen(f, unavailableInARow, now)
}

// tick goes on with the ramp at the end of a step.
func (r *ramping) tick(c *fuse, now time.Time) {
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
func (r *ramping) let(c *fuse, now time.Time) {
	for r.used < 1<<r.step && c.release(false) {
		r.used++
	}
	c.arm(r.until, now)
}
