package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// Lease is a key that a delivery owns for a time. Its methods commit before they return, and are safe for use by many
// goroutines. Errors wrap their causes. After any error but ErrLeaseLost the outcome may be unknown; the call may be
// repeated.
type Lease interface {
	// Fence returns the fencing token. It is positive, and higher than the token of every earlier lease of the key.
	// After a Purge of the key it begins anew with the database's clock, and can be lower if that clock was set back.
	Fence() int64

	// Recorded returns what was recorded when the key was applied with this version or a higher one. It returns nil if
	// the lease was won. A lease with a record cannot be renewed or completed.
	Recorded() *Record

	// Renew makes the lease last for its whole duration from now. It returns ErrLeaseLost if another delivery has taken
	// the key over, or if the key was removed. A lease that expired and was not taken over is still its owner's. A jump
	// of the database's clock can end a lease at once: ahead by what is left of it, or back by more than a second and
	// the time since the last renewal. Another delivery may own the key then, and the owner learns of it by Renew.
	Renew(ctx context.Context) error

	// Complete records the key as applied, with outputs, byte for byte, and with the entry's fingerprint and version.
	// If it returns ErrLeaseLost, it has changed nothing. After a success it succeeds again.
	Complete(ctx context.Context, outputs []byte) error

	// Release gives the lease up, so that the key can be leased at once. What was recorded before stays. For a lease
	// that was lost or completed it does nothing.
	Release(ctx context.Context) error
}

// ErrLeaseLost means that a lease is no longer its owner's: it expired and another delivery took the key over, or the
// key was removed. It is also the cause (context.Cause) with which a handler's context is cancelled, before another
// delivery can take the key over. If the database's clock jumps or the process is suspended, another delivery may be at
// work before that: the handler learns of it at the next renewal, up to a third of the lease later, or when the process
// wakes up.
var ErrLeaseLost = keytable.ErrLeaseLost

// minLease is the shortest lease: it is renewed after a third of it, and a request may take that long.
const minLease = time.Second

// maxLease is longer than any lease is meant to be.
const maxLease = 365 * 24 * time.Hour

// Fence returns the fencing token of the lease under which the message with this context is handled. ok is false
// without a lease, as in transaction mode. The tokens of a key rise from lease to lease, except across a Purge of the
// key if the database's clock was set back meanwhile. A receiving system can keep the highest token of each key, and
// refuse a lower one: it comes from a handler that has lost its lease.
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
			return classify.Permanent(failed("claim", key,
				errors.New("the message is inside of two receivers of one store, one that leases keys and one that holds "+
					"transactions: give the handler one receiver")))
		}
	}
	return nil
}
