package outageguard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/intake"
)

// freeze holds the messages of a handler, or of all, until it is lifted by hand.
type freeze struct {
	handler, reason string
	since           time.Time
	lifted          chan struct{}
	waiting         atomic.Int64
}

// Open holds the messages of a handler until Close is called, for a deployment or a repair. Handler "" means all handlers. No probe
// ends a freeze. Messages in work end as usual. If the handler is frozen already, Open changes its reason.
func (g *Guard) Open(handler, reason string) {
	reason = boundedtext.Text(reason, 200)
	g.mu.Lock()
	from, f := Frozen, g.freezes[handler]
	if f == nil {
		from, f = Closed, &freeze{handler: handler, since: time.Now(), lifted: make(chan struct{})}
		g.freezes[handler] = f
		g.troubled.Add(1)
	}
	f.reason = reason
	g.changes.add(Change{Handler: handler, From: from, To: Frozen, Reason: reason, Waiting: int(f.waiting.Load())})
	g.mu.Unlock()
	g.tell()
}

// Close ends the freeze of a handler. It also ends an outage of the handler: then messages pass in a ramp, without a probe. Handler ""
// means all handlers, and ends every freeze. A freeze of all handlers ends in no other way.
func (g *Guard) Close(handler string) {
	now := time.Now()
	g.mu.Lock()
	for name, f := range g.freezes {
		if handler != "" && handler != name {
			continue
		}
		delete(g.freezes, name)
		close(f.lifted)
		g.troubled.Add(-1)
		g.changes.add(Change{Handler: name, From: Frozen, To: Closed, Reason: f.reason, Waiting: int(f.waiting.Load()), Lasted: now.Sub(f.since)})
	}
	var open []*cell
	for at, s := range g.cells {
		if handler == "" || handler == at.handler {
			open = append(open, s)
		}
	}
	g.mu.Unlock()
	for _, s := range open {
		s.mu.Lock()
		if s.state == Open || s.state == Probing {
			s.evidence.newRun(now)
			s.evidence.newWindow(now)
			s.beginRamp(now)
		}
		s.mu.Unlock()
	}
	g.tell()
}

func (g *Guard) freezeOf(handler string) *freeze {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if len(g.freezes) == 0 {
		return nil
	}
	if f := g.freezes[handler]; f != nil {
		return f
	}
	return g.freezes[""]
}

// thaw waits until the freeze is lifted. Its error gives the message back.
func (p *passage) thaw(ctx context.Context, f *freeze) error {
	if valve := intake.Of(p.c.Ctx); valve != nil && !p.c.Acked() {
		valve.Shut(f.lifted)
		return p.giveBack()
	}
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	began := time.Now()
	timer := time.NewTimer(p.rest(ctx))
	defer func() {
		timer.Stop()
		p.c.Held += time.Since(began)
	}()
	select {
	case <-f.lifted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.giveBack()
}
