package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
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
	waiting                int
}

// Open holds the messages of a handler in this process until Close is called, for a deployment or a repair. Handler ""
// means all handlers. No probe ends a freeze. Messages in work end as usual. If the handler is frozen already, Open
// changes its reason. See Store.Freeze for all instances of a service.
//
// On a nil Breaker it is an error, and holds nothing. So is a name that no handler has. The breaker knows the names if
// Plugin was given to the router, while the router runs, and until it gets a further handler. Otherwise any name is
// accepted.
func (b *Breaker) Open(handler, reason string) error {
	if b == nil {
		return errNoBreaker
	}
	if err := b.named("Open", handler); err != nil {
		return err
	}
	b.mu.Lock()
	b.freeze(frozen{handler: handler}, boundedtext.Text(reason, 200), "")
	b.mu.Unlock()
	b.tell()
	return nil
}

// named returns an error if no handler has the name.
func (b *Breaker) named(method, handler string) error {
	if handler == "" || !b.registry.Complete() || b.registry.Has(handler) {
		return nil
	}
	return fmt.Errorf("breaker: %s: no handler is named %q: use a name of %s, or \"\" for all", method,
		boundedtext.Text(handler, 100), &b.registry)
}

// freeze begins a freeze, or changes its reason. The caller holds b.mu.
func (b *Breaker) freeze(of frozen, reason, actor string) {
	from, f := circuit.Frozen, b.freezes[of]
	if f == nil {
		from, f = circuit.Closed, &freeze{handler: of.handler, since: time.Now(), lifted: make(chan struct{})}
		b.freezes[of] = f
		b.troubled.Add(1)
	} else if f.reason == reason && f.actor == actor {
		return
	}
	f.reason, f.actor = reason, actor
	b.changes = append(b.changes, Change{Handler: of.handler, From: from, To: circuit.Frozen, Reason: reason, Actor: actor,
		Waiting: f.waiting})
}

// lift ends a freeze. The caller holds b.mu.
func (b *Breaker) lift(of frozen, reason, actor string) {
	f := b.freezes[of]
	delete(b.freezes, of)
	close(f.lifted)
	b.troubled.Add(-1)
	b.changes = append(b.changes, Change{Handler: of.handler, From: circuit.Frozen, To: circuit.Closed, Reason: reason, Actor: actor,
		Waiting: f.waiting, Lasted: time.Since(f.since)})
}

// freezeShared makes the freezes of the Store the breaker's own.
func (b *Breaker) freezeShared(all map[string]circuit.Status) {
	b.mu.Lock()
	for of := range b.freezes {
		// the reason of the release, unless that is long ago
		if one := all[of.handler]; of.shared && one.State != circuit.Frozen {
			b.lift(of, one.Reason, one.Actor)
		}
	}
	for handler, one := range all {
		if one.State == circuit.Frozen {
			b.freeze(frozen{handler, true}, one.Reason, one.Actor)
		}
	}
	b.mu.Unlock()
	b.tell()
}

// Close ends the freeze of a handler that Open began. It also ends an outage of the handler: then messages pass in a
// ramp, without a probe. Handler "" means all handlers, and ends every freeze that Open began. A freeze of all handlers
// ends in no other way, and one in the Store with Store.Release alone. A name that no handler has is an error, as in
// Open.
func (b *Breaker) Close(handler string) error {
	if b == nil {
		return nil
	}
	if err := b.named("Close", handler); err != nil {
		return err
	}
	now := time.Now()
	b.mu.Lock()
	for of := range b.freezes {
		if !of.shared && (handler == "" || handler == of.handler) {
			b.lift(of, b.freezes[of].reason, "")
		}
	}
	for at, c := range b.circuits {
		if (handler == "" || handler == at.handler) && c.holds() {
			c.ramp(now)
		}
	}
	b.mu.Unlock()
	b.tell()
	return nil
}

// freezeOf returns a freeze of a handler, or of all, or nil. The caller holds b.mu.
func (b *Breaker) freezeOf(handler string) *freeze {
	for _, of := range [...]frozen{{handler: handler}, {handler, true}, {}, {shared: true}} {
		if f := b.freezes[of]; f != nil {
			return f
		}
	}
	return nil
}
