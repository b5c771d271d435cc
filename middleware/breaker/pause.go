package breaker

import (
	"context"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// minPause and maxPause bound the waits of a message whose errors look like an outage while the breaker is closed.
const minPause, maxPause = 50 * time.Millisecond, time.Second

var errHeld = hold.NewUnavailable("breaker: the downstream is still away; the message is requeued, uncounted")

// pause waits before the next attempt while the breaker is closed. It does not wait for a retry-after, which the next
// failure can show to be of this message alone. Its error gives the message back.
func (p *call) pause() error {
	defer p.unpause()
	ctx := p.c.WaitContext()
	p.waits = min(max(2*p.waits, minPause), maxPause)
	rest := p.rest(ctx)
	defer hold.Holding(p.c, rest, p.breaker.config.Logger)()
	began := time.Now()
	if !wait.For(ctx, min(p.waits, rest)) || p.waits > rest {
		p.paused.lock()
		p.paused.endHold(p)
		p.paused.unlock()
		p.waited(time.Since(began), true)
		return p.giveBack()
	}
	waited := time.Since(began)
	p.c.AddHeld(waited)
	p.waited(waited, false)
	return nil
}

// waited calls the hook after a wait. Call it without a lock.
func (p *call) waited(lasted time.Duration, givenBack bool) {
	if hook := p.breaker.config.Hooks.OnWaited; hook != nil {
		safecall.Hook(p.breaker.config.Logger, "breaker.OnWaited", func() { hook(p.c.Ctx, lasted, givenBack) })
	}
}

func (p *call) unpause() {
	p.paused.lock()
	p.paused.pausing--
	p.paused.unlock()
}

// rest returns how long the message may still be held.
func (p *call) rest(ctx context.Context) time.Duration {
	return hold.Rest(ctx, p.breaker.config.MaxHold, p.c.Held())
}

// giveBack returns the error that gives the message back, uncounted. A message that its handler acked cannot come
// again: for it giveBack returns the handler's error.
func (p *call) giveBack() error {
	err := errHeld
	if p.err != nil {
		err = fmt.Errorf("%w: %w", errHeld, p.err)
		if p.c.Acked() {
			return p.err
		}
	}
	return chain.Requeued(err)
}
