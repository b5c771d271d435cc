package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// frozen names a freeze. A handler can be frozen by this process and, shared, by the Store.
type frozen struct {
	handler string // "" for all
	shared  bool
}

var errNoBreaker = errors.New("breaker: Open: there is no breaker, so no message is held: set Config.Breaker of the channel")

// freeze holds the messages of a handler, or of all, until it is lifted.
type freeze struct {
	handler, reason, actor string
	since                  time.Time
	lifted                 chan struct{}
	waiting                atomic.Int64
}

// Open holds the messages of a handler in this process until Close is called, for a deployment or a repair. Handler ""
// means all handlers. No probe ends a freeze. Messages in work end as usual. If the handler is frozen already, Open
// changes its reason. See Store.Freeze for all instances of a service.
//
// On a nil Breaker it is an error, and holds nothing. So is a name that no handler has. The breaker knows the names if
// Plugin was given to the router, while the router runs, and until it gets a further handler. Otherwise any name is
// accepted.
func (g *Breaker) Open(handler, reason string) error {
	if g == nil {
		return errNoBreaker
	}
	if err := g.named("Open", handler); err != nil {
		return err
	}
	g.mu.Lock()
	g.freeze(frozen{handler: handler}, boundedtext.Text(reason, 200), "")
	g.mu.Unlock()
	g.tell()
	return nil
}

// named returns an error if no handler has the name.
func (g *Breaker) named(method, handler string) error {
	if handler == "" || !g.roster.Complete() || g.roster.Has(handler) {
		return nil
	}
	return fmt.Errorf("breaker: %s: no handler is named %q: use a name of %s, or \"\" for all", method,
		boundedtext.Text(handler, 100), &g.roster)
}

// freeze begins a freeze, or changes its reason. The caller holds g.mu.
func (g *Breaker) freeze(of frozen, reason, actor string) {
	from, f := Frozen, g.freezes[of]
	if f == nil {
		from, f = Closed, &freeze{handler: of.handler, since: time.Now(), lifted: make(chan struct{})}
		g.freezes[of] = f
		g.frozen.Add(1)
		g.troubled.Add(1)
	} else if f.reason == reason && f.actor == actor {
		return
	}
	f.reason, f.actor = reason, actor
	g.changes.add(Change{Handler: of.handler, From: from, To: Frozen, Reason: reason, Actor: actor,
		Waiting: int(f.waiting.Load())})
}

// lift ends a freeze. The caller holds g.mu.
func (g *Breaker) lift(of frozen, reason, actor string) {
	f := g.freezes[of]
	delete(g.freezes, of)
	close(f.lifted)
	g.troubled.Add(-1)
	g.frozen.Add(-1)
	g.changes.add(Change{Handler: of.handler, From: Frozen, To: Closed, Reason: reason, Actor: actor,
		Waiting: int(f.waiting.Load()), Lasted: time.Since(f.since)})
}

// freezeShared makes the freezes of the Store the breaker's own.
func (g *Breaker) freezeShared(all map[string]Status) {
	g.mu.Lock()
	for of := range g.freezes {
		// the reason of the release, unless that is long ago
		if one := all[of.handler]; of.shared && one.State != Frozen {
			g.lift(of, one.Reason, one.Actor)
		}
	}
	for handler, one := range all {
		if one.State == Frozen {
			g.freeze(frozen{handler, true}, one.Reason, one.Actor)
		}
	}
	g.mu.Unlock()
	g.tell()
}

// Close ends the freeze of a handler that Open began. It also ends an outage of the handler: then messages pass in a
// ramp, without a probe. Handler "" means all handlers, and ends every freeze that Open began. A freeze of all handlers
// ends in no other way, and one in the Store with Store.Release alone. A name that no handler has is an error, as in
// Open.
func (g *Breaker) Close(handler string) error {
	if g == nil {
		return nil
	}
	if err := g.named("Close", handler); err != nil {
		return err
	}
	now := time.Now()
	g.mu.Lock()
	for of := range g.freezes {
		if !of.shared && (handler == "" || handler == of.handler) {
			g.lift(of, g.freezes[of].reason, "")
		}
	}
	var open []*cell
	for at, s := range g.cells {
		if handler == "" || handler == at.handler {
			open = append(open, s)
		}
	}
	g.mu.Unlock()
	for _, s := range open {
		s.lock()
		if s.state == Open || s.state == HalfOpen {
			s.window.newRun(now)
			s.window.begin(now)
			s.beginRamp(now)
		}
		s.unlock()
	}
	g.tell()
	return nil
}

// freezeOf returns a freeze of a handler, or of all, or nil.
func (g *Breaker) freezeOf(handler string) *freeze {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if len(g.freezes) == 0 {
		return nil
	}
	for _, of := range [...]frozen{{handler: handler}, {handler, true}, {}, {shared: true}} {
		if f := g.freezes[of]; f != nil {
			return f
		}
	}
	return nil
}

// thaw waits until the freeze is lifted. Its error gives the message back.
func (p *call) thaw(ctx context.Context, f *freeze) (err error) {
	if valve := gate.Of(p.c.Ctx); valve != nil && !p.c.Acked() {
		valve.Shut(f.lifted)
		return p.giveBack()
	}
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	began := time.Now()
	rest := p.rest(ctx)
	defer hold.Holding(p.c, rest, p.breaker.config.Logger)()
	timer := time.NewTimer(rest)
	defer func() {
		timer.Stop()
		waited := time.Since(began)
		p.c.AddHeld(waited)
		p.waited(waited, err != nil)
	}()
	select {
	case <-f.lifted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.giveBack()
}
