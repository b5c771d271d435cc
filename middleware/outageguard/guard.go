package outageguard

import (
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Guard holds the messages of handlers whose downstream is away. It is safe for concurrent use by any number of handlers and routers.
// It needs no closing.
type Guard struct {
	config  Config
	changes changes
	// troubled counts the cells in which something failed lately, and the freezes. While it is 0 messages pass and nothing is noted.
	troubled atomic.Int64

	mu      sync.RWMutex
	cells   map[place]*cell
	scopes  map[string]int // of a handler
	freezes map[string]*freeze
}

// place names a cell.
type place struct {
	handler, scope string
	rest           bool // of the scopes beyond Config.MaxScopes
}

// New returns a Guard, or an error that names the field of config that is wrong.
func New(config Config) (*Guard, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Guard{config: config, cells: make(map[place]*cell), scopes: make(map[string]int), freezes: make(map[string]*freeze)}, nil
}

// Middleware guards h. Put it inside of middleware.Retry and of retry stages, and outside of the idempotent receiver: then each
// attempt passes the guard, and a held failure is not counted.
func (g *Guard) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(g.step)(h)
}

func init() { chain.Register((*Guard).step) }

func (g *Guard) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if g.troubled.Load() != 0 {
			return g.passage(c).run(next, false, nil, nil)
		}
		out, err := next(c)
		if err == nil && g.troubled.Load() == 0 {
			return out, nil
		}
		return g.passage(c).run(next, true, out, err)
	}
}

func (g *Guard) passage(c *chain.Call) *passage {
	p := &passage{guard: g, c: c, of: recent.Of(c), opened: noCell}
	if g.config.Scope != nil {
		safecall.Hook(g.config.Logger, "outageguard.Scope", func() { p.scope = boundedtext.Text(g.config.Scope(c.Original()), 200) })
	}
	return p
}

// lock returns the cell of p's message, with its lock held. Without create it returns nil if nothing of the cell failed lately.
func (g *Guard) lock(p *passage, create bool) *cell {
	at := place{handler: message.HandlerNameFromCtx(p.c.Ctx), scope: p.scope}
	for {
		s := g.find(at)
		if s == nil && create {
			s = g.create(at)
		}
		if s == nil {
			return nil
		}
		s.mu.Lock()
		if !s.retired {
			return s
		}
		s.mu.Unlock()
	}
}

func (g *Guard) find(at place) *cell {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if s := g.cells[at]; s != nil || at.scope == "" {
		return s
	}
	return g.cells[place{handler: at.handler, rest: true}]
}

func (g *Guard) create(at place) *cell {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.cells[at]; s != nil {
		return s
	}
	shown := at.scope
	if at.scope != "" {
		if g.scopes[at.handler] >= g.config.MaxScopes {
			g.retire(at.handler)
		}
		if g.scopes[at.handler] >= g.config.MaxScopes {
			at, shown = place{handler: at.handler, rest: true}, "(others)"
			if s := g.cells[at]; s != nil {
				return s
			}
		} else {
			g.scopes[at.handler]++
		}
	}
	s := newCell(g, at.handler, shown)
	g.cells[at] = s
	return s
}

// retire forgets the scopes of a handler in which nothing failed lately. The caller holds g.mu.
func (g *Guard) retire(handler string) {
	for at, s := range g.cells {
		if at.handler != handler || at.scope == "" || !s.mu.TryLock() { // a cell in use has trouble
			continue
		}
		if !s.troubled && s.state == Closed {
			s.retired = true
			delete(g.cells, at)
			g.scopes[handler]--
		}
		s.mu.Unlock()
	}
}
