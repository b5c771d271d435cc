package breaker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Store is where the instances of a service share outages and freezes, each a Status with the name of the instance that
// found it, or without one for a freeze. Package sqlshare has a Store on a database.
type Store interface {
	// Takes reports whether the Store can hold the names.
	Takes(handler, scope string) bool
	// Rows returns the outages and freezes. A freeze that was released lately is among them, as Closed. An outage of an
	// instance that showed no sign of life for 15 seconds is not, unless it is the given instance's own.
	Rows(ctx context.Context, instance string) ([]circuit.Status, error)
	// Put writes an outage, or changes it. Renew shows that its instance lives, and writes nothing if it is not there:
	// a message of another instance may have ended it.
	Put(ctx context.Context, outage circuit.Status) error
	Renew(ctx context.Context, outage circuit.Status) error
	// End removes an outage or, without an Instance, those of all instances.
	End(ctx context.Context, outage circuit.Status) error
	// Leave removes the outages of an instance that stops.
	Leave(ctx context.Context, instance string) error
}

// shareTimeout bounds one round.
const shareTimeout = 5 * time.Second

// sharing keeps a breaker and a store in step, beside the handlers.
type sharing struct {
	breaker  *Breaker
	store    Store
	every    time.Duration // between two looks at the store
	instance string
	life     *lifecycle.Lifecycle
	wake     chan struct{}

	end         context.CancelFunc
	ended       chan struct{}
	unavailable bool // the store did not answer
}

func newSharing(b *Breaker, store Store) *sharing {
	s := &sharing{breaker: b, store: store, every: time.Second, instance: rand.Text(), wake: make(chan struct{}, 1)}
	s.life = lifecycle.New(s.start, s.stop)
	return s
}

// Plugin takes the names of the router's handlers, for Open and Close. With Config.Store it shares outages with the
// other instances of the service, for as long as handlers of the router run. A store that is unavailable is logged:
// then each instance decides for itself.
func (b *Breaker) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("breaker: Plugin: the router is nil: check the error of message.NewRouter")
	}
	if b == nil {
		return nil
	}
	b.registry.Join(router)
	if b.sharing == nil {
		return nil
	}
	return b.sharing.life.Plugin(router)
}

// start asks the store once before the first message: a freeze may be in it.
func (s *sharing) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	s.end, s.ended = cancel, make(chan struct{})
	s.round(ctx)
	go func() {
		defer close(s.ended)
		s.run(ctx)
	}()
	return nil
}

func (s *sharing) stop() {
	s.end()
	<-s.ended
	ctx, cancel := context.WithTimeout(context.Background(), shareTimeout)
	defer cancel()
	if err := s.store.Leave(ctx, s.instance); err != nil && !s.unavailable {
		eventBreakerNotCleared.Write(s.breaker.config.Logger, err, nil)
	}
	s.breaker.lonely()
}

func (s *sharing) run(ctx context.Context) {
	ticks := time.NewTicker(s.every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-s.wake:
		}
		s.round(ctx)
	}
}

// changed has a round begin soon.
func (s *sharing) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// round reads what others found, and then writes what this instance found.
func (s *sharing) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	err := safecall.Call("breaker: the store", func() error { return s.exchange(ctx) })
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if unavailable := err != nil; unavailable != s.unavailable {
		s.unavailable = unavailable
		if unavailable {
			eventBreakerStoreUnavailable.Write(s.breaker.config.Logger, s.breaker.cause(err), nil)
		} else {
			eventBreakerStoreBack.Write(s.breaker.config.Logger, nil, nil)
		}
	}
}

func (s *sharing) exchange(ctx context.Context) error {
	rows, err := s.store.Rows(ctx, s.instance)
	if err != nil {
		return err
	}
	own, others, freezes := map[place]bool{}, map[place]circuit.Status{}, map[string]circuit.Status{}
	for _, row := range rows {
		at := place{handler: row.Handler, scope: row.Scope}
		switch row.Instance {
		case "":
			freezes[row.Handler] = row
		case s.instance:
			own[at] = true
		default:
			others[at] = row
		}
	}
	s.breaker.freezeShared(freezes)
	for _, news := range s.breaker.share(own, others) {
		if err := news.write(ctx, news.row); err != nil {
			return err
		}
		s.breaker.mu.Lock()
		// also if a proof removed the row: the next round finds that
		news.circuit.shared.row = news.row.State == circuit.Open
		news.circuit.shared.proved = news.circuit.shared.proved && !news.proof
		s.breaker.mu.Unlock()
	}
	return nil
}

// news is what the store must know of a circuit.
type news struct {
	circuit *fuse
	row     circuit.Status
	write   func(context.Context, circuit.Status) error
	proof   bool  // a message succeeded
	cause   error // of the row
}

// shared is what a circuit knows of the other instances.
type shared struct {
	open   bool      // only others say that the downstream is unavailable
	row    bool      // the store has this instance's outage
	proved bool      // a message succeeded, and the others do not know yet
	until  time.Time // others have no say: a message succeeded here while they said that the downstream is unavailable
}

// share does what the other instances say, and returns what they must know. own has the rows of this instance, and
// others one of another instance for each place.
func (b *Breaker) share(own map[place]bool, others map[place]circuit.Status) []news {
	all := b.exchange(own, others)
	b.tell()
	for i, n := range all { // without the lock: an error's text can take its time
		if cause := b.cause(n.cause); cause != nil {
			all[i].row.Cause = boundedtext.Text(cause.Error(), 1000)
		}
	}
	return all
}

func (b *Breaker) exchange(own map[place]bool, others map[place]circuit.Status) (all []news) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := range others {
		b.find(at, true)
	}
	for at, c := range b.circuits {
		if at.scope == otherScopes || !b.sharing.store.Takes(at.handler, at.scope) {
			continue
		}
		row, said := others[at]
		c.hear(own[at], said, row, now)
		if n := c.news(b.sharing); n.write != nil {
			all = append(all, n)
		}
	}
	return all
}

// lonely lets this instance decide for itself: the store is not asked any more.
func (b *Breaker) lonely() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.circuits {
		c.shared.open, c.shared.row = false, false
	}
}

// hear does what the other instances say of the circuit.
func (c *fuse) hear(own, said bool, row circuit.Status, now time.Time) {
	isOpen := c.holds()
	switch {
	case c.state.name() == circuit.Closed && said && now.After(c.shared.until) && !c.shared.proved:
		c.trouble(now)
		c.open(ReasonShared, &failure{err: otherInstance(row), verdict: classify.Verdict{Unavailable: true}}, now)
		c.shared.open = true
	case isOpen && c.shared.open && !said, isOpen && c.shared.row && !own && !said:
		c.shared.open, c.shared.row = false, false // another instance'c message succeeded, or that instance died
		c.ramp(now)
	}
}

// otherInstance returns the cause of an outage that another instance found.
func otherInstance(row circuit.Status) error {
	return fmt.Errorf("another instance, %s: %w", boundedtext.Text(row.Instance, 40), errors.New(row.Cause))
}

// prove notes that a message succeeded while the circuit was open.
func (s *shared) prove(now time.Time) {
	s.proved = true
	if s.open {
		s.open, s.until = false, now.Add(calm)
	}
}

// news returns what the other instances must know of the circuit, without a write if that is nothing.
func (c *fuse) news(s *sharing) news {
	n := news{circuit: c, row: circuit.Status{Handler: c.handler, Scope: c.scope, Instance: s.instance}}
	switch {
	case c.shared.proved:
		n.row.Instance, n.write, n.proof = "", s.store.End, true
	case c.holds() && !c.shared.open:
		n.row.State, n.row.Reason, n.cause = circuit.Open, boundedtext.Text(c.reason, 200), c.cause
		n.write = s.store.Put
		if c.shared.row {
			n.write = s.store.Renew
		}
	case c.shared.row:
		n.write = s.store.End
	}
	return n
}
