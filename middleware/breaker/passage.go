package breaker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// passage is a message in the breaker: its attempts, with the waits between them.
type passage struct {
	breaker *Breaker
	c       *chain.Call
	of      recent.Message
	scope   string

	circuit *circuit // that let the attempt begin, or nil
	opened  uint64   // of circuit, when the attempt began
	probe   bool     // the attempt is a probe

	paused *circuit // that counts the message among those that pause

	err    error         // of the latest attempt
	after  time.Duration // the retry-after of err
	waits  time.Duration // the latest pause
	later  bool          // there is a next stage
	name   bool          // a log line must name the message
	gaveUp bool          // a log line must say that errors like this one hold no more messages
}

// untroubled is passage.opened of an attempt that began while nothing failed.
const untroubled = math.MaxUint64

// minPause and maxPause bound the waits of a message whose errors look like an outage while the circuit is closed.
const minPause, maxPause = 50 * time.Millisecond, time.Second

var (
	errHeld  = hold.NewUnavailable("breaker: the downstream is still unavailable; the message is requeued, uncounted")
	errAlone = errors.New("no other message failed with it")
)

// begin notes that an attempt may begin. The caller holds the lock of c.
func (p *passage) begin(c *circuit, probe bool) { p.circuit, p.opened, p.probe = c, c.opened, probe }

// stale reports whether the attempt began before the circuit last opened.
func (p *passage) stale(c *circuit) bool {
	if p.circuit != c || p.opened == untroubled {
		return c.state.name() != Closed
	}
	return p.opened != c.opened
}

// run calls next until its outcome is for the parts further out. began means that the first attempt has ended, with out
// and o.
func (p *passage) run(next chain.Handler, began bool, out []*message.Message,
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
		case doubtful:
			p.c.Doubted = true
			return nil, o
		case pause:
			if err := p.pause(); err != nil {
				return nil, chain.OutcomeOf(err)
			}
		}
		p.err, p.c.Doubted = o.Why, false
		p.c.Restore()
	}
}

// attempt calls next once. A panic and runtime.Goexit leave the probe to the next message.
func (p *passage) attempt(next chain.Handler) ([]*message.Message, chain.Outcome) {
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
func (p *passage) settle(o chain.Outcome) decision {
	if o.Next == chain.Done {
		if c := p.breaker.lock(p, false); c != nil {
			c.succeeded(p, time.Now())
			c.mu.Unlock()
		}
		return pass
	}
	if p.c.Nacked() || p.c.Claimed() || p.c.Left(o) {
		p.release(true)
		return pass
	}
	verdict := p.breaker.config.Classifier.Classify(o.Why)
	if verdict.NotNow || !attempts.CanSucceed(verdict.Class) {
		p.release(!verdict.NotNow)
		return pass
	}
	p.after = verdict.RetryAfter
	if p.later = p.probe; p.later {
		stage := verdict
		stage.RetryAfter = min(stage.RetryAfter, p.breaker.config.MaxProbe)
		p.later = p.c.HasNextStage(stage)
	}
	c := p.breaker.lock(p, true)
	decided := c.failed(&failure{p: p, err: o.Why, verdict: verdict}, time.Now())
	acked := p.c.Acked() && decided != nextStage // it cannot come again
	if decided == pause && !acked {
		c.pausing++
		p.paused = c
	}
	c.mu.Unlock()
	p.breaker.tell()
	p.log(o.Why, verdict)
	if acked {
		return pass
	}
	return decided
}

// release notes that the attempt proves nothing.
func (p *passage) release(atOnce bool) {
	if c := p.circuit; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.released(p, atOnce, time.Now())
	}
}

// enter waits until an attempt may begin. Its error requeues the message.
func (p *passage) enter() error {
	ctx := p.c.WaitContext()
	for {
		if f := p.frozen(); f != nil {
			if err := p.thaw(ctx, f); err != nil {
				return err
			}
			continue
		}
		var c *circuit
		if !p.c.Doubted {
			c = p.breaker.lock(p, false)
		}
		if c == nil {
			p.circuit, p.opened = nil, untroubled
			return nil
		}
		if ok, probe := c.state.admit(c, time.Now()); ok {
			p.begin(c, probe)
			c.mu.Unlock()
			p.breaker.tell()
			return nil
		}
		if valve := gate.Of(p.c.Ctx); valve != nil && c.state.name() != Ramping && !p.c.Acked() {
			valve.Shut(c.shut())
			c.mu.Unlock()
			return p.requeue()
		}
		w := c.join(p)
		c.mu.Unlock()
		p.breaker.tell()
		resumed := p.waitFor(ctx, w.goOn) || !c.leave(w) // or at the last moment
		switch {
		case !resumed:
			return p.requeue()
		case ctx.Err() != nil:
			p.release(true)
			return p.requeue()
		case p.frozen() == nil:
			return nil
		}
		p.release(true) // a freeze does not probe
	}
}

// waitFor holds the message until a channel is closed, and reports whether it is: not if the message was held for long
// enough, or went away.
func (p *passage) waitFor(ctx context.Context, goOn <-chan struct{}) (closed bool) {
	rest := p.rest(ctx)
	defer hold.Holding(p.c, rest, p.breaker.config.Logger)()
	began, timer := time.Now(), time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-goOn:
		closed = true
	case <-timer.C:
	case <-ctx.Done():
	}
	p.waited(time.Since(began), !closed || ctx.Err() != nil)
	return closed
}

// pause waits before the next attempt while the circuit is closed. It does not wait for a retry-after, which the next
// failure can show to be of this message alone. Its error requeues the message.
func (p *passage) pause() error {
	defer func() {
		p.paused.mu.Lock()
		defer p.paused.mu.Unlock()
		p.paused.pausing--
	}()
	ctx := p.c.WaitContext()
	p.waits = min(max(2*p.waits, minPause), maxPause)
	rest := p.rest(ctx)
	defer hold.Holding(p.c, rest, p.breaker.config.Logger)()
	began := time.Now()
	ended := !timing.Wait(ctx, min(p.waits, rest)) || p.waits > rest
	p.waited(time.Since(began), ended)
	if ended {
		return p.requeue()
	}
	return nil
}

// waited notes a wait, and calls the hook. Call it without a lock.
func (p *passage) waited(lasted time.Duration, requeued bool) {
	p.c.AddHeld(lasted)
	if hook := p.breaker.config.Hooks.OnWaited; hook != nil {
		safecall.Hook(p.breaker.config.Logger, "breaker.OnWaited", func() { hook(p.c.Ctx, lasted, requeued) })
	}
}

// rest returns how long the message may still be held.
func (p *passage) rest(ctx context.Context) time.Duration {
	return hold.Rest(ctx, p.breaker.config.MaxHold, p.c.Held())
}

// requeue returns the error that requeues the message, uncounted. A message that its handler acked cannot come again:
// for it requeue returns the handler's error.
func (p *passage) requeue() error {
	err := errHeld
	if p.err != nil {
		err = fmt.Errorf("%w: %w", errHeld, p.err)
		if p.c.Acked() {
			return p.err
		}
	}
	return chain.Requeued(err)
}

// bounded keeps an error from asking a stage for a longer wait than the breaker itself allows: the stage would
// dead-letter its message.
func (p *passage) bounded(err error) error {
	if longest := p.breaker.config.MaxProbe; p.after > longest {
		return classify.Unavailable(err, classify.RetryAfter(longest)) // no other error sends a message to its next stage
	}
	return err
}

// log writes the lines that a failure asks for.
func (p *passage) log(err error, verdict classify.Verdict) {
	b, handler := p.breaker, message.HandlerNameFromCtx(p.c.Ctx)
	if p.name {
		logging.BreakerHeldByOne.Write(b.config.Logger, b.cause(fmt.Errorf("%w: %w", errAlone, err)), logging.Fields{
			logging.Topic: message.SubscribeTopicFromCtx(p.c.Ctx), logging.Handler: handler, logging.MessageID: p.c.ID(),
		})
	}
	if p.gaveUp {
		fields := logging.Fields{logging.Handler: handler, logging.Class: verdict.Class.String()}
		if p.scope != "" {
			fields["scope"] = p.scope
		}
		logging.BreakerGaveUp.Write(b.config.Logger, b.cause(err), fields)
	}
	p.name, p.gaveUp = false, false
}
