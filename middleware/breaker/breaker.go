package breaker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/registry"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

// link makes the type that embeds it a part of chains.
type link = chain.Link

// Breaker holds the messages of handlers whose downstream is away. It is safe for concurrent use by any number of
// handlers and routers. It needs no closing. A nil Breaker, which a spillway.Channel without Config.Breaker has, holds
// no message: Middleware returns the handler as it is, Health is empty, and Open and Close do nothing.
type Breaker struct {
	link
	config  Config
	changes changes
	// troubled counts the cells in which something failed lately, and the freezes. While it is 0 messages pass and
	// nothing is noted.
	troubled atomic.Int64
	frozen   atomic.Int64 // freezes

	mu      sync.RWMutex
	cells   map[place]*cell
	freezes map[frozen]*freeze

	sharing *sharing // nil without Config.Store
	roster  registry.Roster
}

// place names a cell.
type place struct {
	handler, scope string
	others         bool
}

// rest is the place of the scopes of a handler beyond maxScopes.
func (at place) rest() place { return place{handler: at.handler, others: at.scope != ""} }

// New returns a Breaker, or an error that names the field of config that is wrong.
func New(config Config) (*Breaker, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Breaker{config: config, cells: make(map[place]*cell), freezes: make(map[frozen]*freeze)}
	g.link = chain.LinkOf(g.step)
	if config.Store != nil {
		g.sharing = newSharing(g, config.Store)
	}
	return g, nil
}

// Middleware puts the breaker around h. Put it inside of middleware.Retry and of retry stages, and outside of the
// idempotent receiver: then each attempt passes the breaker, and a held failure is not counted.
func (g *Breaker) Middleware(h message.HandlerFunc) message.HandlerFunc {
	if g == nil {
		return h
	}
	return chain.Enter(g.step)(h)
}

func (g *Breaker) step(next chain.Handler) chain.Handler {
	var known atomic.Pointer[cell] // of the handler
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if g.troubled.Load() != 0 && c.Hold != chain.HoldNone {
			if out, o, then, done := g.quickly(&known, c, next); then != nil {
				return then.run(next, true, out, o)
			} else if done {
				return out, o
			}
			return g.call(c).run(next, false, nil, chain.Outcome{})
		}
		out, o := next(c)
		if o.Next == chain.Done && g.troubled.Load() == 0 || c.Hold == chain.HoldNone {
			return out, o
		}
		return g.call(c).run(next, true, out, o)
	}
}

func (g *Breaker) call(c *chain.Call) *call {
	p := &call{breaker: g, c: c, of: recent.Of(c), opened: noCell}
	if g.config.Scope != nil {
		safecall.Hook(g.config.Logger, "breaker.Scope", func() {
			p.scope = boundedtext.Text(g.config.Scope(c.Original()), 200)
		})
	}
	return p
}

// lock returns the cell of p's message, with its lock held: the one that let its attempt begin, or its own. Without
// create it returns nil if nothing of the cell failed lately.
func (g *Breaker) lock(p *call, create bool) *cell {
	for s := p.cell; ; s = nil {
		if s == nil {
			s = g.find(place{handler: message.HandlerNameFromCtx(p.c.Ctx), scope: p.scope}, create)
		}
		if s == nil {
			return nil
		}
		s.lock()
		if !s.retired {
			return s
		}
		s.unlock()
	}
}

func (g *Breaker) find(at place, create bool) *cell {
	g.mu.RLock()
	s := g.cells[at]
	if s == nil && !create {
		s = g.cells[at.rest()]
	}
	g.mu.RUnlock()
	if s != nil || !create {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.cells[at]; s != nil {
		return s
	}
	shown := at.scope
	if at.scope != "" && !g.makeRoom(at.handler) {
		at, shown = at.rest(), "(others)"
		if s := g.cells[at]; s != nil {
			return s
		}
	}
	s = newCell(g, at.handler, shown)
	g.cells[at] = s
	return s
}

// makeRoom reports whether a handler may have one more scope. If it has too many, the one is forgotten that holds
// nothing and whose latest failure is longest ago. The caller holds g.mu.
func (g *Breaker) makeRoom(handler string) bool {
	n, oldest, since := 0, place{}, time.Time{}
	for at, s := range g.cells {
		if at.handler != handler || at.scope == "" {
			continue
		}
		if n++; !s.mu.TryLock() { // it is in use
			continue
		}
		if s.idle() && (oldest == place{} || s.failedAt.Before(since)) {
			oldest, since = at, s.failedAt
		}
		s.unlock()
	}
	if n < maxScopes {
		return true
	}
	if oldest == (place{}) {
		return false
	}
	s := g.cells[oldest]
	if !s.mu.TryLock() {
		return false
	}
	defer s.unlock()
	if !s.idle() {
		return false
	}
	s.calmDown()
	s.disarm()
	s.retired = true
	delete(g.cells, oldest)
	return true
}
