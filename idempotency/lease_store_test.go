package idempotency_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// The settings under which the contract must hold beside the defaults.
var leaseSettings = map[string][]string{
	"postgres": {"default_transaction_isolation=serializable"},
	"mariadb": {"clientFoundRows=true&interpolateParams=true&multiStatements=true", "tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1",
		"sql_mode=%27ANSI%27&time_zone=%27-05:00%27&charset=latin1"},
}

// Feature I3: every store keeps the contract of a Lease.
func TestLease(t *testing.T) {
	for _, d := range kinds {
		for _, settings := range append([]string{""}, leaseSettings[d.name]...) {
			t.Run(d.name+" "+cmp.Or(settings, "defaults"), func(t *testing.T) { // SQLite would take the # of an empty name for a fragment
				with := d
				with.create = func(t testing.TB) string {
					address := d.create(t)
					if settings == "" {
						return address
					}
					separator := "?"
					if strings.Contains(address, "?") {
						separator = "&"
					}
					return address + separator + settings
				}
				testLease(t, with)
			})
		}
	}
}

var leaseKey = idempotency.Key{Consumer: "shop/billing", ID: "m1"}

// testLease is the contract of Store.Lease and Lease as tests.
func testLease(t *testing.T, d database) {
	ctx := context.Background()
	const long = time.Hour
	entry := idempotency.Entry{Key: leaseKey, Fingerprint: []byte("print")}
	start := func(t *testing.T) (here, there idempotency.Store, db *sql.DB) {
		c := newCell(t, d)
		return c.store(c.db), c.store(c.open(t, c.address)), c.db
	}
	win := func(t *testing.T, s idempotency.Store, e idempotency.Entry) idempotency.Lease {
		t.Helper()
		l, err := s.Lease(ctx, e, long)
		testkit.Require(t, err == nil && l.Recorded() == nil && l.Fence() > 0, "got %+v, %v", l, err)
		return l
	}
	held := func(t *testing.T, s idempotency.Store, e idempotency.Entry) {
		t.Helper()
		l, err := s.Lease(ctx, e, long)
		testkit.Require(t, errors.Is(err, idempotency.ErrHeld), "got %v, %v", l, err)
	}
	lost := func(t *testing.T, l idempotency.Lease) {
		t.Helper()
		for doing, err := range map[string]error{"renew": l.Renew(ctx), "complete": l.Complete(ctx, []byte("late"))} {
			testkit.Check(t, errors.Is(err, idempotency.ErrLeaseLost), "%s: %v", doing, err)
		}
		err := l.Release(ctx)
		testkit.Check(t, err == nil, "release: %v", err)
	}

	t.Run("held", func(t *testing.T) {
		here, there, _ := start(t)
		l := win(t, here, entry)
		held(t, here, entry)
		held(t, there, entry)
		for range 50 { // many within one millisecond
			testkit.NoError(t, l.Renew(ctx))
		}
		held(t, there, entry)
		win(t, there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "m2"}})
		win(t, there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/shipping", ID: "m1"}})
	})

	t.Run("expires", func(t *testing.T) {
		here, there, _ := start(t)
		first := testkit.Must(here.Lease(ctx, entry, 50*time.Millisecond))
		eventually(t, "the key can be leased again", func() bool {
			second, err := there.Lease(ctx, entry, long)
			testkit.Require(t, err == nil || errors.Is(err, idempotency.ErrHeld), "%v", err)
			return err == nil && second.Fence() > first.Fence()
		})
		lost(t, first)
	})

	t.Run("waits for a transaction", func(t *testing.T) {
		here, there, _ := start(t)
		for _, commit := range []bool{false, true} {
			c := testkit.Must(here.Claim(ctx, entry))
			t.Cleanup(func() { _ = c.Release() })
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if _, err := there.Lease(short, entry, long); err == nil || errors.Is(err, idempotency.ErrHeld) {
				t.Fatal(err)
			}
			got := make(chan idempotency.Lease, 1)
			go func() {
				l, err := there.Lease(ctx, entry, long)
				testkit.Is(t, err, nil)
				got <- l
			}()
			end := c.Release
			if commit {
				end = func() error { return c.Commit(nil) }
			}
			err := end()
			l := <-got
			testkit.Require(t, err == nil && l != nil && (l.Recorded() != nil) == commit, "%+v, %v", l, err)
			if !commit {
				_ = l.Release(ctx)
			}
		}
	})

	t.Run("context ended", func(t *testing.T) {
		here, _, db := start(t)
		l := win(t, here, entry)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := here.Lease(ended, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "i"}}, long)
		for _, err := range []error{err, l.Renew(ended), l.Complete(ended, nil), l.Release(ended)} {
			testkit.Is(t, err, context.Canceled)
		}
		if err := errors.Join(l.Renew(ctx), l.Complete(ctx, nil)); err != nil || count(t, db, "spillway_keys") != 1 {
			t.Fatal(err)
		}
	})

}

// Feature I3: of many that come at once to a lease that is over exactly one gets it, and so with a key that is new.
func TestLeaseRace(t *testing.T) {
	onKinds(t, func(t *cell) {
		stores := []idempotency.Store{t.store(t.db), t.store(t.open(t, t.address)), t.store(t.open(t, t.address))}
		for round := range 10 {
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

// Feature I3: an error names the store and wraps its cause.
func TestLeaseErrors(t *testing.T) {
	onKinds(t, func(t *cell) {
		store := t.store(t.db)
		l := testkit.Must(store.Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour))
		_ = t.db.Close()
		_, err := store.Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
		for what, err := range map[string]error{
			"lease the key": err, "renew the lease": l.Renew(t.Context()), "complete the lease": l.Complete(t.Context(), nil), "give the lease up": l.Release(t.Context()),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s: %s: ", t.says, what)) || errors.Is(err, idempotency.ErrLeaseLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
