// Package hold says how long a message may be held without an ack, and knows messages that their broker delivers again
// meanwhile.
//
// A part that holds a message asks Rest for how long, and calls Holding. Settle, at the outermost part of a chain,
// settles a copy of a held message as that one is settled.
package hold

import (
	"context"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// NewUnavailable returns an error that says that what is needed is unavailable, for Spillway's own clients.
// outage.Unavailable is true for it. Wrap it, or keep it as a sentinel.
func NewUnavailable(text string) error { return &Unavailable{text} }

// Unavailable is an error of NewUnavailable.
type Unavailable struct{ text string }

func (e *Unavailable) Error() string { return e.text }

// reserve is the time kept free before the deadline of a message, to requeue it in.
const reserve = time.Second

// DefaultMaxHold is less than the shortest usual time after which a broker redelivers a message without an ack: 30 s.
const DefaultMaxHold = 20 * time.Second

type holdKey struct{}

// WithMaxHold returns ctx for a message that its adapter lets be held for hold. It is for brokers that count returned
// messages, and drop a message that was returned too often.
func WithMaxHold(ctx context.Context, hold time.Duration) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// Rest returns how much longer a message may be held that was held before. It keeps a reserve free before the deadline
// of ctx, to give the message back in.
func Rest(ctx context.Context, configured, held time.Duration) time.Duration {
	rest := MaxHold(ctx, configured) - held
	if deadline, ok := ctx.Deadline(); ok {
		rest = min(rest, time.Until(deadline)-reserve)
	}
	return max(rest, 0)
}

// Redeliverer is a subscriber that knows when its broker delivers a message again that has no ack. Any subscriber can
// have the method.
type Redeliverer interface {
	// RedeliveryTime returns that time. 0 means never, as long as the session with the broker lives.
	RedeliveryTime() time.Duration
}

// Redelivery is what is known of the redeliveries of one subscriber. It bounds how long messages of the subscriber are
// held. A nil *Redelivery is of an unknown subscriber.
type Redelivery struct {
	// After is the time after which the broker delivers a message again. 0 means never.
	After time.Duration
	// Known reports whether the subscriber, or the table of Watermill's own ones, gave the time.
	Known bool
	// InTransaction reports whether the subscriber acks a message in a transaction that the message's handler can write
	// in.
	InTransaction bool

	session  bool // it redelivers at the end of a session, whatever a message was held for
	mu       sync.Mutex
	learned  time.Duration // the longest hold, since a message came again earlier than expected; or 0
	changed  chan struct{} // closed when learned changes
	kept     map[chain.Fingerprint]*kept
	sweeping bool      // a timer calls sweep
	notified sync.Once // that a message came again
	// until then each message is remembered: the client's buffer can have copies of those behind a held one
	alert time.Time
}

// RedeliveryOf returns what is known of a subscriber, given as decorated.Subscriptions gives it: by the method
// RedeliveryTime of it or of a subscriber that it decorates, or by the table of known subscribers.
func RedeliveryOf(layers iter.Seq2[message.Subscriber, reflect.Value]) *Redelivery {
	r := &Redelivery{}
	for sub, value := range layers {
		if own, ok := sub.(Redeliverer); ok {
			var after time.Duration
			err := safecall.Call("RedeliveryTime", func() error { after = own.RedeliveryTime(); return nil })
			if err == nil && after >= 0 {
				r.After, r.Known = after, true
			}
			return r
		}
		k := SubscriberOf(value)
		if k != nil && (!r.Known || k.After != 0 && (r.After == 0 || k.After < r.After)) {
			r.After, r.Known, r.session, r.InTransaction = k.After, true, k.Session, r.InTransaction || k.Transaction
		}
	}
	return r
}

const (
	// minLearned keeps messages from going round ever faster.
	minLearned = time.Second
	// never is longer than a message is held.
	never = 24 * time.Hour
)

// fits returns how long a message may be held that comes again after the given time. The other half is for what comes
// before the hold and after it: the way to this process, the handler, a publish and the ack.
func fits(after time.Duration) time.Duration { return after / 2 }

// MaxHold returns how long a message of the subscriber may be held in all. configured is an upper bound, or 0. It is
// cut, and not refused, if the broker redelivers earlier: the redelivery time can be a default that the broker's
// settings overrule, and one MaxHold can be for subscribers of several brokers. For an unknown subscriber, what is
// configured counts.
func (r *Redelivery) MaxHold(configured time.Duration) time.Duration {
	hold := never
	switch {
	case r != nil && r.Known && r.After > 0:
		hold = fits(r.After)
	case r == nil || !r.Known:
		if hold = configured; hold == 0 {
			hold = DefaultMaxHold
		}
	}
	if configured > 0 {
		hold = min(hold, configured)
	}
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.learned > 0 {
			hold = min(hold, r.learned)
		}
	}
	return hold
}

// Learn notes that a message came again while it was held for a time already. It reports whether messages are held for
// less from now on.
func (r *Redelivery) Learn(after time.Duration) (shorter bool) {
	if r == nil || r.session || r.Known && r.After == 0 {
		return false
	}
	hold := max(fits(after), minLearned)
	if hold >= r.MaxHold(0) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned > 0 && hold >= r.learned {
		return false
	}
	r.learned = hold
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
	return true
}

// Changed returns a channel that is closed when messages are held for less. It never is for a nil Redelivery.
func (r *Redelivery) Changed() <-chan struct{} {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

type redeliveryKey struct{}

// WithRedelivery returns ctx for a call of Subscribe. The messages' contexts then have what is known of the subscriber,
// since subscribers derive them from ctx.
func WithRedelivery(ctx context.Context, r *Redelivery) context.Context {
	return context.WithValue(ctx, redeliveryKey{}, r)
}

// Note gives msg's context what WithRedelivery did not give it.
func (r *Redelivery) Note(msg *message.Message) {
	if msg != nil && RedeliveryIn(msg.Context()) == nil {
		msg.SetContext(WithRedelivery(msg.Context(), r))
	}
}

// RedeliveryIn returns the value of WithRedelivery in ctx, or nil.
func RedeliveryIn(ctx context.Context) *Redelivery {
	r, _ := ctx.Value(redeliveryKey{}).(*Redelivery)
	return r
}

// MaxHold returns how long a message with ctx may be held in all. It is the least of:
//
//   - configured, if that is not 0;
//   - the time that the message's adapter allows (WithMaxHold), or without one, what fits its subscriber (Redelivery),
//     or DefaultMaxHold if nothing is configured;
//   - DefaultMaxHold for a message in a subscriber's transaction, if nothing is configured.
func MaxHold(ctx context.Context, configured time.Duration) time.Duration {
	r := RedeliveryIn(ctx)
	hold, adapters := ctx.Value(holdKey{}).(time.Duration)
	switch {
	case !adapters:
		hold = r.MaxHold(configured)
	case r != nil: // what it learned
		hold = min(hold, r.MaxHold(never))
	}
	if configured > 0 {
		return min(hold, configured)
	}
	if !adapters && chain.TransactionOf(ctx) != nil {
		return min(hold, DefaultMaxHold)
	}
	return hold
}
