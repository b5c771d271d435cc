package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// Lease is a key that its owner is at work on, for a time. Its methods are short, commit before they return, and are safe
// for use by many goroutines. Errors wrap their causes; after any but ErrLeaseLost the outcome may be unknown, and the call
// may be made again.
type Lease interface {
	// Fence returns the fencing token, which is positive and higher than that of every lease of the key before. After a Purge
	// of the key it begins anew with the database's clock, and can be lower where that was set back.
	Fence() int64

	// Recorded returns what was recorded when the key was applied before, with this version or a higher one, or nil where
	// the lease was won. Without having been won it is nothing that could be renewed, completed or released.
	Recorded() *Record

	// Renew makes the lease last for its whole duration from now. ErrLeaseLost says that another one has taken the key over,
	// or that the key was removed. A lease that expired and was not taken is still its owner's. A jump of the
	// database's clock can end a lease at once: ahead by what is left of it, or back by more than a second and the time since the
	// last renewal. Another one may have the key then, and Renew is how the owner learns of it.
	Renew(ctx context.Context) error

	// Complete records the key as applied: with outputs, byte for byte, and the fingerprint and version of the entry. It
	// returns ErrLeaseLost as Renew does, and then changed nothing. Called again, it says that it has succeeded.
	Complete(ctx context.Context, outputs []byte) error

	// Release gives the lease up, so that the key can be leased at once. What was recorded before stays. A lease that was lost
	// or completed is no error.
	Release(ctx context.Context) error
}

// ErrLeaseLost says that a lease is no longer its owner's: it expired and another delivery took the key over, or the key
// was removed. It is also the cause (context.Cause) with which the context of a handler is cancelled: in time for that,
// unless the database's clock jumps or the process is suspended. Then another delivery may be at work already, and the
// handler learns of it at the next renewal, up to a third of the lease later, or when the process wakes up.
var ErrLeaseLost = keytable.ErrLeaseLost

// minLease is the shortest lease: it is renewed after a third of it, and a request may take that long.
const minLease = time.Second

// maxLease is longer than anybody means.
const maxLease = 365 * 24 * time.Hour

// Fence returns the fencing token of the lease under which the message with this context is handled; ok is false where
// there is none, as in transaction mode. Tokens of a key rise from lease to lease, though not across a Purge of the key
// where the database's clock was set back meanwhile. Whoever is written to can keep the highest token it has seen of a key
// and refuse a lower one: it comes from a handler that has lost its lease.
func Fence(ctx context.Context) (token int64, ok bool) {
	s := scopeOf(ctx)
	if s == nil {
		return 0, false
	}
	l, ok := s.store.(leasingStore)
	return l.fence, ok
}

// leasingStore is the store of a scope that holds a lease: it locks nothing.
type leasingStore struct {
	Store
	fence int64
}

func (s leasingStore) same(other Store) bool { return sameStore(s.Store, other) }

// sameMode refuses a receiver inside of one of the other mode: the handler would have a transaction or a lease where it
// relies on the other.
func (r *Receiver) sameMode(ctx context.Context, msg *message.Message, key Key) error {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		_, leases := s.store.(leasingStore)
		if s.msg == msg && s.entry.Key == key && sameStore(s.store, r.store) && leases != (r.config.Lease > 0) {
			return classify.Permanent(failed("claim", key, errors.New("the message is inside of two receivers of one store, one that "+
				"leases keys and one that holds transactions: give the handler one receiver")))
		}
	}
	return nil
}
