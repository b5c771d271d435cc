package breaker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// passage is a message in the breaker: its attempts, with the waits between them.
type passage struct {
	breaker *Breaker
	c       *chain.Call
	of      recent.Message
	at      place

	circuit *fuse  // that let the attempt begin, or nil if nothing of it failed
	opened  uint64 // of circuit, when the attempt began
	probe   bool   // the attempt is a probe

	queued *list.Element // in the queue of a circuit, or nil
	goOn   chan struct{} // closed when the message leaves the queue for an attempt

	err   error         // of the latest attempt
	waits time.Duration // the latest pause
}

// minPause and maxPause bound the waits of a message whose errors look like an outage while the circuit is closed.
const minPause, maxPause = 50 * time.Millisecond, time.Second

var (
	errHeld  = hold.NewUnavailable("breaker: the downstream is still unavailable; the message is requeued, uncounted")
	errAlone = errors.New("no other message failed with it")
)

func (b *Breaker) passage(c *chain.Call) *passage {
	p := &passage{breaker: b, c: c, of: recent.Of(c), at: place{handler: message.HandlerNameFromCtx(c.Ctx)}}
	if b.config.Scope != nil {
		safecall.Hook(b.config.Logger, "breaker.Scope", func() {
			p.at.scope = boundedtext.Text(b.config.Scope(c.Original()), 200)
		})
	}
	return p
}

// find returns the circuit that let the attempt begin, or that of the message. Without create it returns nil if nothing
// of the circuit failed lately. The caller holds the breaker's lock.
func (p *passage) find(create bool) *fuse {
	if c := p.circuit; c != nil && p.breaker.circuits[c.place] == c {
		return c
	}
	return p.breaker.find(p.at, create)
}

// begin notes that an attempt may begin.
func (p *passage) begin(c *fuse, probe bool) { p.circuit, p.opened, p.probe = c, c.opened, probe }

// stale reports whether the attempt began before the circuit last opened.
func (p *passage) stale(c *fuse) bool {
	if p.circuit != c {
		return c.state.name() != circuit.Closed
	}
	return p.opened != c.opened
}

// run makes attempts until the outcome of one is for the parts further out.
func (p *passage) run(next chain.Handler) ([]*message.Message, chain.Outcome) {
	for {
		if err := p.enter(); err != nil {
			return nil, chain.OutcomeOf(err)
		}
		out, o := p.attempt(next)
		if o, ends := p.settle(o); ends {
			return out, o
		}
	}
}

// attempt calls next once. A panic and runtime.Goexit leave the probe to the next message.
func (p *passage) attempt(next chain.Handler) ([]*message.Message, chain.Outcome) {
	returned := false
	defer func() {
		if !returned {
			p.release(true)
		}
	}()
	out, o := next(p.c)
	returned = true
	return out, o
}

// settle decides what becomes of the message after an attempt. It returns the outcome for the parts further out, if
// no other attempt follows.
func (p *passage) settle(o chain.Outcome) (_ chain.Outcome, ends bool) {
	b := p.breaker
	if o.Next == chain.Done {
		b.mu.Lock()
		if c := p.find(false); c != nil {
			c.succeeded(p, time.Now())
		}
		b.mu.Unlock()
		b.tell()
		return o, true
	}
	if p.c.Nacked() || p.c.Claimed() || p.c.Left(o) {
		p.release(true)
		return o, true
	}
	verdict := b.config.Classifier.Classify(o.Why)
	if verdict.NotNow || !attempts.CanSucceed(verdict.Class) {
		p.release(!verdict.NotNow)
		return o, true
	}
	f := &failure{p: p, err: o.Why, verdict: verdict}
	if p.probe {
		stage := verdict
		stage.RetryAfter = min(stage.RetryAfter, b.config.MaxProbe)
		f.later = p.c.HasNextStage(stage)
	}
	b.mu.Lock()
	c := p.find(true)
	decided := c.failed(f, time.Now())
	if p.c.Acked() && decided != nextStage { // it cannot come again
		decided = pass
	}
	if decided == pause {
		c.pausing++
	}
	b.mu.Unlock()
	b.tell()
	f.log()
	p.err, p.c.Doubted = o.Why, decided == doubtful
	switch decided {
	case pass, doubtful:
		return o, true
	case nextStage:
		return chain.Outcome{Next: chain.Stage, Why: f.bounded()}, true
	case pause:
		if err := p.pause(c); err != nil {
			return chain.OutcomeOf(err), true
		}
	}
	p.c.Restore()
	return o, false
}

// release notes that the attempt proves nothing.
func (p *passage) release(atOnce bool) {
	p.breaker.mu.Lock()
	if p.circuit != nil {
		p.circuit.released(p, atOnce, time.Now())
	}
	p.breaker.mu.Unlock()
	p.breaker.tell()
}

// enter waits until an attempt may begin. Its error requeues the message.
func (p *passage) enter() error {
	b, ctx, valve := p.breaker, p.c.WaitContext(), gate.Of(p.c.Ctx)
	if p.c.Acked() { // it cannot come again
		valve = nil
	}
	for {
		b.mu.Lock()
		if f := b.freezeOf(p.at.handler); f != nil {
			if valve != nil {
				valve.Shut(f.lifted)
				b.mu.Unlock()
				return p.requeue()
			}
			f.waiting++
			b.mu.Unlock()
			lifted := p.waitFor(ctx, f.lifted)
			b.mu.Lock()
			f.waiting--
			b.mu.Unlock()
			if !lifted {
				return p.requeue()
			}
			continue
		}
		c := p.find(false)
		if c == nil || p.c.Doubted {
			p.circuit = nil
			b.mu.Unlock()
			return nil
		}
		if ok, probe := c.state.admit(c, time.Now()); ok {
			p.begin(c, probe)
			b.mu.Unlock()
			b.tell()
			return nil
		}
		if valve != nil && c.state.name() != circuit.Ramping {
			valve.Shut(c.shut())
			b.mu.Unlock()
			return p.requeue()
		}
		c.join(p)
		b.mu.Unlock()
		b.tell()
		resumed := p.waitFor(ctx, p.goOn) || !c.leave(p) // or at the last moment
		b.mu.Lock()
		freezes := b.freezeOf(p.at.handler) != nil
		b.mu.Unlock()
		switch {
		case !resumed:
			return p.requeue()
		case ctx.Err() != nil:
			p.release(true)
			return p.requeue()
		case !freezes:
			return nil
		}
		p.release(true) // a freeze does not probe
	}
}

// waitFor holds the message until a channel is closed, and reports whether it is: not if the message was held for long
// enough, or went away.
func (p *passage) waitFor(ctx context.Context, goOn <-chan struct{}) (closed bool) {
	rest := hold.Rest(ctx, p.breaker.config.MaxHold, p.c.Held())
	defer hold.Holding(p.c, rest, p.breaker.config.Logger)()
	began, timer := time.Now(), time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-goOn:
		closed = true
	case <-timer.C:
	case <-ctx.Done():
	}
	lasted, requeued := time.Since(began), !closed || ctx.Err() != nil
	p.c.AddHeld(lasted)
	if hook := p.breaker.config.Hooks.OnWaited; hook != nil {
		safecall.Hook(p.breaker.config.Logger, "breaker.OnWaited", func() { hook(p.c.Ctx, lasted, requeued) })
	}
	return closed
}

// pause waits before the next attempt while the circuit is closed. It does not wait for a retry-after, which the next
// failure can show to be of this message alone. Its error requeues the message.
func (p *passage) pause(c *fuse) error {
	ctx, goOn := p.c.WaitContext(), make(chan struct{})
	p.waits = min(max(2*p.waits, minPause), maxPause)
	defer time.AfterFunc(p.waits, func() { close(goOn) }).Stop()
	resumed := p.waitFor(ctx, goOn)
	p.breaker.mu.Lock()
	c.pausing--
	p.breaker.mu.Unlock()
	if !resumed || ctx.Err() != nil {
		return p.requeue()
	}
	return nil
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

// failure is a failed attempt, and what its circuit makes of it.
type failure struct {
	p       *passage
	err     error
	verdict classify.Verdict
	later   bool // it is a probe's, and there is a next stage

	probe, stale bool // what the attempt was
	alone        bool // a log line must name the message
	gaveUp       bool // a log line must say that errors like this one hold no more messages
}

// bounded keeps the error from asking a stage for a longer wait than the breaker itself allows: the stage would
// dead-letter its message.
func (f *failure) bounded() error {
	if longest := f.p.breaker.config.MaxProbe; f.verdict.RetryAfter > longest {
		return classify.Unavailable(f.err, classify.RetryAfter(longest)) // no other error sends a message to its next stage
	}
	return f.err
}

// log writes the lines that the failure asks for.
func (f *failure) log() {
	b, at, ctx := f.p.breaker, f.p.at, f.p.c.Ctx
	if f.alone {
		eventBreakerHeldByOne.Write(b.config.Logger, b.cause(fmt.Errorf("%w: %w", errAlone, f.err)), logging.Fields{
			logging.Topic: message.SubscribeTopicFromCtx(ctx), logging.Handler: at.handler, logging.MessageID: f.p.c.ID(),
		})
	}
	if f.gaveUp {
		fields := logging.Fields{logging.Handler: at.handler, logging.Class: f.verdict.Class.String()}
		if at.scope != "" {
			fields["scope"] = at.scope
		}
		eventBreakerGaveUp.Write(b.config.Logger, b.cause(f.err), fields)
	}
}
