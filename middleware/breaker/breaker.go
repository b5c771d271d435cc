package breaker

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/registry"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
)

// link makes the type that embeds it a part of chains.
type link = chain.Link

// Breaker holds the messages of handlers whose downstream is unavailable. It is safe for concurrent use by any number
// of handlers and routers. It needs no closing. A nil Breaker, which a spillway.Channel without Config.Breaker has,
// holds no message: Middleware returns the handler as it is, Health is empty, and Open and Close do nothing.
type Breaker struct {
	link
	config  Config
	changes changes
	// troubled counts the circuits in which something failed lately, and the freezes. While it is 0 messages pass and
	// nothing is noted.
	troubled atomic.Int64
	frozen   atomic.Int64 // freezes

	mu       sync.RWMutex
	circuits map[place]*circuit
	freezes  map[frozen]*freeze

	sharing  *sharing // nil without Config.Store
	registry registry.Registry
}

// place names a circuit.
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
	b := &Breaker{config: config, circuits: make(map[place]*circuit), freezes: make(map[frozen]*freeze)}
	b.link = chain.LinkOf(b.step)
	if config.Store != nil {
		b.sharing = newSharing(b, config.Store)
	}
	return b, nil
}

// Middleware puts the breaker around h. Put it inside of middleware.Retry and of retry stages, and outside of the
// idempotent receiver: then each attempt passes the breaker, and a held failure is not counted.
func (b *Breaker) Middleware(h message.HandlerFunc) message.HandlerFunc {
	if b == nil {
		return h
	}
	return chain.Enter(b.step)(h)
}

func (b *Breaker) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if b.troubled.Load() == 0 {
			out, o := next(c)
			if o.Next == chain.Done && b.troubled.Load() == 0 {
				return out, o
			}
			return b.passage(c).run(next, true, out, o)
		}
		circuit, opened, ok := b.letPass(c)
		if !ok {
			return b.passage(c).run(next, false, nil, chain.Outcome{})
		}
		out, o := next(c)
		if o.Next == chain.Done && b.passed(c, circuit, opened) {
			return out, o
		}
		p := b.passage(c)
		p.circuit, p.opened = circuit, opened
		return p.run(next, true, out, o)
	}
}

// letPass reports whether a message may pass because its circuit is closed, which is nil if nothing of the handler
// failed. It allocates nothing: most messages succeed, also where one in a hundred fails.
func (b *Breaker) letPass(c *chain.Call) (_ *circuit, opened uint64, ok bool) {
	if b.config.Scope != nil || b.frozen.Load() != 0 || c.Doubted {
		return nil, 0, false
	}
	of := b.find(place{handler: message.HandlerNameFromCtx(c.Ctx)}, false)
	if of == nil {
		return nil, untroubled, true
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	return of, of.opened, !of.retired && of.state.name() == Closed
}

// passed notes the success of a message that letPass let pass. It reports false if the circuit changed meanwhile.
func (b *Breaker) passed(c *chain.Call, of *circuit, opened uint64) bool {
	if of == nil {
		return b.find(place{handler: message.HandlerNameFromCtx(c.Ctx)}, false) == nil
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.retired || of.opened != opened {
		return false
	}
	of.passed(recent.Of(c))
	return true
}

func (b *Breaker) passage(c *chain.Call) *passage {
	p := &passage{breaker: b, c: c, of: recent.Of(c), opened: untroubled}
	if b.config.Scope != nil {
		safecall.Hook(b.config.Logger, "breaker.Scope", func() {
			p.scope = boundedtext.Text(b.config.Scope(c.Original()), 200)
		})
	}
	return p
}

// lock returns the circuit of p's message, with its lock held: the one that let its attempt begin, or its own. Without
// create it returns nil if nothing of the circuit failed lately.
func (b *Breaker) lock(p *passage, create bool) *circuit {
	for c := p.circuit; ; c = nil {
		if c == nil {
			c = b.find(place{handler: message.HandlerNameFromCtx(p.c.Ctx), scope: p.scope}, create)
		}
		if c == nil {
			return nil
		}
		c.mu.Lock()
		if !c.retired {
			return c
		}
		c.mu.Unlock()
	}
}

func (b *Breaker) find(at place, create bool) *circuit {
	b.mu.RLock()
	c := b.circuits[at]
	if c == nil && !create {
		c = b.circuits[at.rest()]
	}
	b.mu.RUnlock()
	if c != nil || !create {
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.circuits[at]; c != nil {
		return c
	}
	shown := at.scope
	if at.scope != "" && !b.makeRoom(at.handler) {
		at, shown = at.rest(), "(others)"
		if c := b.circuits[at]; c != nil {
			return c
		}
	}
	c = newCircuit(b, at.handler, shown)
	b.circuits[at] = c
	return c
}

// makeRoom reports whether a handler may have one more scope. If it has too many, the one is forgotten that holds
// nothing and whose latest failure is longest ago. The caller holds b.mu.
func (b *Breaker) makeRoom(handler string) bool {
	n, oldest, since := 0, place{}, time.Time{}
	for at, c := range b.circuits {
		if at.handler != handler || at.scope == "" {
			continue
		}
		if n++; !c.mu.TryLock() { // it is in use
			continue
		}
		if c.idle() && (oldest == place{} || c.failedAt.Before(since)) {
			oldest, since = at, c.failedAt
		}
		c.mu.Unlock()
	}
	if n < maxScopes {
		return true
	}
	c := b.circuits[oldest]
	if c == nil || !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	if !c.idle() {
		return false
	}
	c.calmDown()
	c.disarm()
	c.retired = true
	delete(b.circuits, oldest)
	return true
}

// Status is the state of one handler and scope, in this process or, from Store.List, in a service.
type Status struct {
	// Handler is empty for a freeze of all handlers. Scope is empty without Config.Scope.
	Handler string `json:"handler"`
	Scope   string `json:"scope,omitempty"`
	// Instance names the process that found an outage, if a Store says so.
	Instance string `json:"instance,omitempty"`
	State    State  `json:"state"`
	// Since is when the state was last Closed.
	Since time.Time `json:"since"`
	// Reason and Cause say why the breaker is open.
	Reason string `json:"reason,omitempty"`
	Cause  string `json:"cause,omitempty"`
	// Actor is who froze the handler, if a Store says so.
	Actor string `json:"actor,omitempty"`
	// Waiting is the number of messages that this process holds.
	Waiting int `json:"waiting,omitzero"`
	// NextProbe is when the next message is tried, if the state is Open.
	NextProbe time.Time `json:"next_probe,omitzero"`
}

// Health returns the state of each handler and scope that is not Closed, or that holds a message, in the order of their
// names.
func (b *Breaker) Health() []Status {
	found := []Status{}
	if b == nil {
		return found
	}
	b.mu.RLock()
	circuits := make([]*circuit, 0, len(b.circuits))
	for _, c := range b.circuits {
		circuits = append(circuits, c)
	}
	for _, f := range b.freezes {
		found = append(found, Status{Handler: f.handler, State: Frozen, Since: f.since, Reason: f.reason,
			Actor:   f.actor,
			Waiting: int(f.waiting.Load())})
	}
	b.mu.RUnlock()
	for _, c := range circuits {
		c.mu.Lock()
		if c.state.name() != Closed || c.waiting() > 0 {
			found = append(found, c.status())
		}
		c.mu.Unlock()
	}
	slices.SortStableFunc(found, func(a, b Status) int { // a freeze stays before an outage
		return cmp.Or(cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Scope, b.Scope))
	})
	return found
}
