package breaker

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/registry"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// link makes the type that embeds it a part of chains.
type link = chain.Link

// Breaker holds the messages of handlers whose downstream is unavailable. It is safe for concurrent use by any number
// of handlers and routers. It needs no closing. A nil Breaker, which a spillway.Channel without Config.Breaker has,
// holds no message: Middleware returns the handler as it is, Health is empty, and Open and Close do nothing.
type Breaker struct {
	link
	config   Config
	sharing  *sharing // nil without Config.Store
	registry registry.Registry
	// troubled counts the circuits in which something failed lately, and the freezes. While it is 0 messages pass and
	// nothing is noted.
	troubled atomic.Int64

	mu       sync.Mutex // of what follows, and of the circuits and freezes
	circuits map[place]*fuse
	freezes  map[frozen]*freeze
	changes  []Change // that are not told yet
	telling  bool
}

// place names a circuit.
type place struct{ handler, scope string }

// otherScopes is the scope of those beyond maxScopes.
const otherScopes = "(others)"

// New returns a Breaker, or an error that names the field of config that is wrong.
func New(config Config) (*Breaker, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	b := &Breaker{config: config, circuits: make(map[place]*fuse), freezes: make(map[frozen]*freeze)}
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
		circuit, opened, ok := b.letPass(c)
		if !ok {
			return b.passage(c).run(next)
		}
		out, o := next(c)
		if o.Next == chain.Done && b.passed(c, circuit, opened) {
			return out, o
		}
		p := b.passage(c)
		p.circuit, p.opened = circuit, opened
		if o, ends := p.settle(o); ends {
			return out, o
		}
		return p.run(next)
	}
}

// letPass reports whether a message may pass because its circuit is closed, which is nil if nothing of the handler
// failed. It allocates nothing: most messages succeed, also where one in a hundred fails.
func (b *Breaker) letPass(c *chain.Call) (_ *fuse, opened uint64, ok bool) {
	if b.troubled.Load() == 0 {
		return nil, 0, true
	}
	if b.config.Scope != nil || c.Doubted {
		return nil, 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.circuits[place{handler: message.HandlerNameFromCtx(c.Ctx)}]
	switch {
	case len(b.freezes) > 0:
		return nil, 0, false
	case of == nil:
		return nil, 0, true
	}
	return of, of.opened, of.state.name() == circuit.Closed
}

// passed notes the success of a message that letPass let pass. It reports false if the circuit changed meanwhile.
func (b *Breaker) passed(c *chain.Call, of *fuse, opened uint64) bool {
	if of == nil && b.troubled.Load() == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if of == nil {
		return b.config.Scope == nil && b.circuits[place{handler: message.HandlerNameFromCtx(c.Ctx)}] == nil
	}
	if of.opened != opened {
		return false
	}
	of.passed(recent.Of(c))
	return true
}

// find returns the circuit of a message of a handler and scope, or nil if nothing of it failed lately and it need not
// be created. The caller holds b.mu.
func (b *Breaker) find(at place, create bool) *fuse {
	others := at
	if at.scope != "" {
		others.scope = otherScopes
	}
	c := b.circuits[at]
	switch {
	case c != nil:
		return c
	case !create:
		return b.circuits[others]
	case at.scope != "" && !b.makeRoom(at.handler):
		if at = others; b.circuits[at] != nil {
			return b.circuits[at]
		}
	}
	c = &fuse{breaker: b, place: at, state: new(closed), window: newWindow()}
	b.circuits[at] = c
	return c
}

// makeRoom reports whether a handler may have one more scope. If it has too many, the one is forgotten that holds
// nothing and whose latest failure is longest ago. The caller holds b.mu.
func (b *Breaker) makeRoom(handler string) bool {
	var oldest *fuse
	n := 0
	for at, c := range b.circuits {
		if at.handler != handler || at.scope == "" || at.scope == otherScopes {
			continue
		}
		if n++; c.idle() && (oldest == nil || c.failedAt.Before(oldest.failedAt)) {
			oldest = c
		}
	}
	switch {
	case n < maxScopes:
		return true
	case oldest == nil:
		return false
	}
	oldest.calmDown()
	delete(b.circuits, oldest.place)
	return true
}

// Health returns the state of each handler and scope that is not Closed, or that holds a message, in the order of their
// names.
func (b *Breaker) Health() []circuit.Status {
	found := []circuit.Status{}
	if b == nil {
		return found
	}
	b.mu.Lock()
	for _, f := range b.freezes {
		found = append(found, circuit.Status{Handler: f.handler, State: circuit.Frozen, Since: f.since, Reason: f.reason,
			Actor: f.actor, Waiting: f.waiting})
	}
	causes := make(map[place]error)
	for at, c := range b.circuits {
		if c.state.name() != circuit.Closed || c.waiting() > 0 {
			found = append(found, c.status())
			causes[at] = c.cause
		}
	}
	b.mu.Unlock()
	for i, status := range found { // without the lock: an error's text can take its time
		if cause := causes[place{status.Handler, status.Scope}]; cause != nil && status.State != circuit.Frozen {
			found[i].Cause = b.cause(cause).Error()
		}
	}
	slices.SortStableFunc(found, func(a, b circuit.Status) int { // a freeze stays before an outage
		return cmp.Or(cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Scope, b.Scope))
	})
	return found
}
