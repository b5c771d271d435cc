package breaker

import (
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/errorkind"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

// decision is what becomes of a message whose attempt ended.
type decision int

const (
	pass      decision = iota // its outcome goes to the parts further out
	keep                      // it waits in the queue
	pause                     // it waits a moment, although others pass
	nextStage                 // it goes to its next stage
	unheld                    // it is retried as if there were no breaker
	doubtful                  // the same, unless one of its errors says away
)

// call is one call of the breaker for a message: its attempts, with the waits between them.
type call struct {
	breaker *Breaker
	c       *chain.Call
	of      recent.Message
	scope   string

	cell   *cell  // that let the attempt begin, or nil
	opened uint64 // of cell, when the attempt began
	probe  bool   // the attempt is a probe

	paused *cell // that counts the message among those that pause

	err   error         // of the latest attempt
	after time.Duration // the retry-after of err
	waits time.Duration // the latest pause
	later bool          // there is a next stage
	name  bool          // a log line must name the message

	gaveUp string // the kind of error of which a log line must say that it holds no more messages
}

// noCell is call.opened of an attempt that began while nothing failed.
const noCell = math.MaxUint64

// begin notes that an attempt may begin. The caller holds s.mu.
func (p *call) begin(s *cell, probe bool) { p.cell, p.opened, p.probe = s, s.opened, probe }

// stale reports whether the attempt began before the breaker last opened.
func (p *call) stale(s *cell) bool {
	if p.cell != s || p.opened == noCell {
		return s.state != Closed
	}
	return p.opened != s.opened
}

// run calls next until its outcome is for the parts further out. began means that the first attempt has ended, with out
// and o.
func (p *call) run(next chain.Handler, began bool, out []*message.Message,
	o chain.Outcome) ([]*message.Message, chain.Outcome) {
	defer p.breaker.tell()
	for {
		if !began {
			if err := p.enter(); err != nil {
				return nil, chain.OutcomeOf(err)
			}
			out, o = p.attempt(next)
		}
		began = false
		switch p.settle(o) {
		case pass:
			return out, o
		case nextStage:
			return nil, chain.Outcome{Next: chain.Stage, Why: p.bounded(o.Why)}
		case unheld:
			p.c.Hold = chain.HoldNone
			return nil, o
		case doubtful:
			p.c.Hold = chain.HoldAway
			return nil, o
		case pause:
			if err := p.pause(); err != nil {
				return nil, chain.OutcomeOf(err)
			}
		}
		p.err, p.c.Hold = o.Why, chain.HoldAll
		p.c.Restore()
	}
}

// attempt calls next once. A panic and runtime.Goexit leave the probe to the next message.
func (p *call) attempt(next chain.Handler) ([]*message.Message, chain.Outcome) {
	returned := false
	defer func() {
		if !returned {
			p.release(true)
			p.breaker.tell()
		}
	}()
	out, o := next(p.c)
	returned = true
	return out, o
}

// settle decides what becomes of the message after an attempt.
func (p *call) settle(o chain.Outcome) decision {
	if o.Next == chain.Done {
		p.succeeded()
		return pass
	}
	c, err := p.c, o.Why
	if c.Nacked() || c.Claimed() || c.Left(o) {
		p.release(true)
		return pass
	}
	verdict := p.breaker.config.Classifier.Classify(err)
	if verdict.NotNow || !attempts.CanSucceed(verdict.Class) {
		p.release(!verdict.NotNow)
		return pass
	}
	p.after = verdict.RetryAfter
	if p.later = p.probe; p.later {
		stage := verdict
		stage.RetryAfter = min(stage.RetryAfter, p.breaker.config.MaxProbe)
		p.later = c.HasNextStage(stage)
	}
	var kind string
	if !verdict.Away {
		kind = errorkind.Of(err)
	}
	s := p.breaker.lock(p, true)
	decided := s.failed(p, verdict, err, kind, time.Now())
	if decided == pause {
		s.pausing++
		p.paused = s
	}
	s.unlock()
	p.breaker.tell()
	if p.name {
		p.name = false
		p.logAlone(err)
	}
	if p.gaveUp != "" {
		p.logGaveUp(err, verdict)
	}
	if c.Acked() && decided != nextStage && decided != unheld { // it cannot come again
		if decided == pause {
			p.unpause()
		}
		return pass
	}
	return decided
}

func (p *call) succeeded() {
	if s := p.breaker.lock(p, false); s != nil {
		s.succeeded(p, time.Now())
		s.unlock()
	}
}

// release notes that the attempt proves nothing.
func (p *call) release(atOnce bool) {
	if p.cell == nil {
		return
	}
	p.cell.lock()
	p.cell.released(p, atOnce, time.Now())
	p.cell.unlock()
}

// enter waits until an attempt may begin. Its error gives the message back.
func (p *call) enter() error {
	c, ctx := p.c, p.c.WaitContext()
	for {
		if f := p.frozen(); f != nil {
			if err := p.thaw(ctx, f); err != nil {
				return err
			}
			continue
		}
		var s *cell
		if c.Hold != chain.HoldAway {
			s = p.breaker.lock(p, false)
		}
		if s == nil {
			p.cell, p.opened = nil, noCell
			return nil
		}
		if s.admit(p, time.Now()) {
			s.unlock()
			p.breaker.tell()
			return nil
		}
		if valve := gate.Of(c.Ctx); valve != nil && s.state != Ramping && !c.Acked() {
			valve.Shut(s.shut())
			s.unlock()
			return p.giveBack()
		}
		w := s.join(p)
		s.unlock()
		p.breaker.tell()
		began := time.Now()
		rest := p.rest(ctx)
		held := hold.Holding(c, rest, p.breaker.config.Logger)
		granted := s.await(ctx, w, rest)
		held()
		waited := time.Since(began)
		c.AddHeld(waited)
		p.waited(waited, !granted || ctx.Err() != nil)
		switch {
		case !granted:
			s.lock()
			s.endHold(p)
			s.unlock()
			return p.giveBack()
		case ctx.Err() != nil:
			p.release(true)
			return p.giveBack()
		case p.frozen() == nil:
			return nil
		}
		p.release(true) // a freeze does not probe
	}
}

func (p *call) frozen() *freeze { return p.breaker.freezeOf(message.HandlerNameFromCtx(p.c.Ctx)) }

// admit reports whether p's attempt may begin now. The caller holds s.mu.
func (s *cell) admit(p *call, now time.Time) bool {
	probe := false
	switch s.state {
	case Ramping:
		if s.queue.Len() > 0 || !s.ramp.admit() {
			return false
		}
	case Open, HalfOpen:
		s.tick(now)
		if s.queue.Len() > 0 || s.state == Open && now.Before(s.due) ||
			s.state == HalfOpen && now.Before(s.probing.Add(probeLease)) {
			return false
		}
		if s.state != Closed { // tick can close it
			probe = true
			s.probe(now)
		}
	}
	p.begin(s, probe)
	return true
}

// bounded keeps an error from asking a stage for a longer wait than the breaker itself allows: the stage would
// dead-letter its message.
func (p *call) bounded(err error) error {
	if longest := p.breaker.config.MaxProbe; p.after > longest {
		return classify.Away(err, classify.RetryAfter(longest)) // no other error sends a message to its next stage
	}
	return err
}
