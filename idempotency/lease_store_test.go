package idempotency_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var leaseKey = idempotency.Key{Consumer: "shop/billing", ID: "m1"}

func (c *cell) wins(s idempotency.Store, e idempotency.Entry) idempotency.Lease {
	c.Helper()
	l, err := s.Lease(c.Context(), e, time.Hour)
	testkit.Require(c, err == nil && l.Recorded() == nil && l.Fence() > 0, "got %+v, %v", l, err)
	return l
}

// Feature I3: the contract of a Lease, with the waits, the clock and the contexts that the model leaves out.
func (c *cell) leaseContract() {
	ctx, entry := c.Context(), idempotency.Entry{Key: leaseKey, Fingerprint: []byte("print")}
	here, there := c.store(c.db), c.store(c.open(c, c.address))
	claim := testkit.Must(here.Claim(ctx, entry))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := there.Lease(short, entry, time.Hour)
	testkit.Check(c, err != nil && !errors.Is(err, idempotency.ErrHeld), "who waits for a transaction: %v", err)
	won := inBackground(func() bool {
		l, err := there.Lease(ctx, entry, 50*time.Millisecond)
		return err == nil && l.Recorded() == nil && l.Release(ctx) == nil
	})
	testkit.NoError(c, claim.Release())
	testkit.Check(c, <-won, "who waited for a transaction that ended did not get the lease")

	first := testkit.Must(there.Lease(ctx, entry, 50*time.Millisecond))
	var l idempotency.Lease
	eventually(c, "it is over, and the key can be leased again", func() bool {
		l, err = here.Lease(ctx, entry, time.Hour)
		testkit.Require(c, err == nil || errors.Is(err, idempotency.ErrHeld), "%v", err)
		return err == nil && l.Fence() > first.Fence()
	})
	testkit.Is(c, first.Renew(ctx), idempotency.ErrLeaseLost)
	testkit.Is(c, first.Complete(ctx, []byte("late")), idempotency.ErrLeaseLost)
	testkit.NoError(c, first.Release(ctx))
	for range 50 { // many within one millisecond
		testkit.NoError(c, l.Renew(ctx))
	}
	for _, s := range []idempotency.Store{here, there} {
		testkit.Is(c, testkit.Err(s.Lease(ctx, entry, time.Hour)), idempotency.ErrHeld)
	}
	c.wins(there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "m2"}})
	c.wins(there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/shipping", ID: "m1"}})

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = here.Lease(ended, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "i"}}, time.Hour)
	for _, err := range []error{err, l.Renew(ended), l.Complete(ended, nil), l.Release(ended)} {
		testkit.Is(c, err, context.Canceled)
	}
	testkit.NoError(c, errors.Join(l.Renew(ctx), l.Complete(ctx, nil)))
	c.rows(0, 3)
}

// Feature I3: of many that come at once to a lease that is over exactly one gets it, and so with a key that is new.
func TestLeaseRace(t *testing.T) {
	onKinds(t, func(t *cell) {
		stores := []idempotency.Store{t.store(t.db), t.store(t.open(t, t.address)), t.store(t.open(t, t.address))}
		for round := range 4 {
			var won atomic.Int32
			atOnce(t.T, 24, func(i int) error {
				_, err := stores[i%len(stores)].Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
				if err == nil {
					won.Add(1)
				} else if errors.Is(err, idempotency.ErrHeld) {
					return nil
				}
				return err
			})
			testkit.Require(t, won.Load() == 1, "round %d: %d owners", round, won.Load())
			t.exec(`UPDATE spillway_keys SET expires_at = 0`)
		}
	})
}
