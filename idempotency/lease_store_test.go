package idempotency_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

// leaseBase is a kind of database in which keys are leased.
type leaseBase struct {
	name, driver string
	create       func(testing.TB) (address string)
	store        func(*sql.DB) idempotency.Store
}

var leaseBases = []leaseBase{
	{"sqlite", "sqlite", func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)&_pragma=synchronous(normal)"
	}, storeOn},
	{"postgres", "pgx", postgrestest.Schema, storeOn},
	{"mariadb", "mysql", mysqltest.Database, storeOn},
}

// open opens a pool as a process of its own would.
func (b leaseBase) open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(b.driver, address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ready returns the address of a database with a table of keys, and a pool on it.
func (b leaseBase) ready(t testing.TB) (address string, db *sql.DB) {
	t.Helper()
	address = b.create(t)
	db = b.open(t, address)
	b.store(db)
	return address, db
}

func onLeaseBases(t *testing.T, test func(t *testing.T, b leaseBase)) {
	for _, b := range leaseBases {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// The settings under which the contract must hold beside the defaults.
var leaseSettings = map[string][]string{
	"postgres": {"default_transaction_isolation=serializable"},
	"mariadb": {"clientFoundRows=true&interpolateParams=true&multiStatements=true", "tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1",
		"sql_mode=%27ANSI%27&time_zone=%27-05:00%27&charset=latin1"},
}

// Feature I3: every store keeps the contract of a Lease.
func TestLease(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		for _, settings := range append([]string{""}, leaseSettings[b.name]...) {
			t.Run(cmp.Or(settings, "defaults"), func(t *testing.T) { // SQLite would take the # of an empty name for a fragment
				with := b
				with.create = func(t testing.TB) string {
					address := b.create(t)
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
	})
}

var leaseKey = idempotency.Key{Consumer: "shop/billing", ID: "m1"}

func execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// testLease is the contract of Store.Lease and Lease as tests.
func testLease(t *testing.T, b leaseBase) {
	ctx := context.Background()
	const long = time.Hour
	entry := idempotency.Entry{Key: leaseKey, Fingerprint: []byte("print")}
	version := func(v int64) idempotency.Entry {
		return idempotency.Entry{Key: leaseKey, Version: v, Versioned: true}
	}
	start := func(t *testing.T) (here, there idempotency.Store, db *sql.DB) {
		address, db := b.ready(t)
		return b.store(db), b.store(b.open(t, address)), db
	}
	win := func(t *testing.T, s idempotency.Store, e idempotency.Entry) idempotency.Lease {
		t.Helper()
		l, err := s.Lease(ctx, e, long)
		if err != nil || l.Recorded() != nil || l.Fence() <= 0 {
			t.Fatalf("got %+v, %v", l, err)
		}
		return l
	}
	found := func(t *testing.T, s idempotency.Store, e idempotency.Entry) *idempotency.Record {
		t.Helper()
		l, err := s.Lease(ctx, e, long)
		if err != nil || l.Recorded() == nil {
			t.Fatalf("got %+v, %v", l, err)
		}
		if l.Fence() != 0 || l.Renew(ctx) == nil || l.Complete(ctx, nil) == nil || l.Release(ctx) != nil {
			t.Fatal("what was recorded is a lease too")
		}
		return l.Recorded()
	}
	held := func(t *testing.T, s idempotency.Store, e idempotency.Entry) {
		t.Helper()
		if l, err := s.Lease(ctx, e, long); !errors.Is(err, idempotency.ErrHeld) {
			t.Fatalf("got %v, %v", l, err)
		}
	}
	expire := func(t *testing.T, db *sql.DB) {
		t.Helper()
		execute(t, db, `UPDATE spillway_keys SET expires_at = 1, applied_at = 1`)
	}
	lost := func(t *testing.T, l idempotency.Lease) {
		t.Helper()
		for doing, err := range map[string]error{"renew": l.Renew(ctx), "complete": l.Complete(ctx, []byte("late"))} {
			if !errors.Is(err, idempotency.ErrLeaseLost) {
				t.Errorf("%s: %v", doing, err)
			}
		}
		if err := l.Release(ctx); err != nil {
			t.Error("release: ", err)
		}
	}

	t.Run("held", func(t *testing.T) {
		here, there, _ := start(t)
		l := win(t, here, entry)
		held(t, here, entry)
		held(t, there, entry)
		for range 50 { // many within one millisecond
			if err := l.Renew(ctx); err != nil {
				t.Fatal(err)
			}
		}
		held(t, there, entry)
		win(t, there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "m2"}})
		win(t, there, idempotency.Entry{Key: idempotency.Key{Consumer: "shop/shipping", ID: "m1"}})
	})

	t.Run("complete records", func(t *testing.T) {
		here, there, db := start(t)
		l := win(t, here, entry)
		outputs := []byte{0, 0xff, 'a'}
		for range 2 { // the second as if the answer to the first were lost
			if err := l.Complete(ctx, outputs); err != nil {
				t.Fatal(err)
			}
		}
		if r := found(t, there, entry); !bytes.Equal(r.Outputs, outputs) || string(r.Fingerprint) != "print" || r.Versioned {
			t.Fatalf("%+v", r)
		}
		if err := errors.Join(l.Release(ctx), here.MarkPublished(ctx, entry)); err != nil || !errors.Is(l.Renew(ctx), idempotency.ErrLeaseLost) {
			t.Fatal(err)
		}
		if r := found(t, there, entry); r.Outputs != nil {
			t.Fatalf("%+v", r)
		}
		c, err := there.Claim(ctx, entry)
		if err != nil || c.Recorded() == nil {
			t.Fatal(err)
		}
		_ = c.Release()
		if n := count(t, db, `spillway_keys WHERE outputs IS NULL AND version IS NULL`); n != 1 {
			t.Fatal("no outputs and no version are not NULL")
		}
	})

	t.Run("takeover", func(t *testing.T) {
		here, there, db := start(t)
		first := win(t, here, entry)
		expire(t, db)
		second := win(t, there, entry)
		if second.Fence() <= first.Fence() {
			t.Fatal(first.Fence(), second.Fence())
		}
		lost(t, first)
		held(t, here, entry)
		if err := second.Complete(ctx, []byte("second")); err != nil {
			t.Fatal(err)
		}
		lost(t, first)
		if r := found(t, here, entry); string(r.Outputs) != "second" {
			t.Fatalf("%+v", r)
		}
	})

	t.Run("expires", func(t *testing.T) {
		here, there, _ := start(t)
		first, err := here.Lease(ctx, entry, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the key can be leased again", func() bool {
			second, err := there.Lease(ctx, entry, long)
			if err != nil && !errors.Is(err, idempotency.ErrHeld) {
				t.Fatal(err)
			}
			return err == nil && second.Fence() > first.Fence()
		})
		lost(t, first)
	})

	t.Run("expired and not taken", func(t *testing.T) {
		here, there, db := start(t)
		l := win(t, here, entry)
		expire(t, db)
		if err := l.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		held(t, there, entry)
		expire(t, db)
		if err := l.Complete(ctx, nil); err != nil {
			t.Fatal(err)
		}
		found(t, there, entry)
	})

	t.Run("release", func(t *testing.T) {
		here, there, _ := start(t)
		fence := int64(0)
		for range 5 {
			l := win(t, here, entry)
			if l.Fence() <= fence {
				t.Fatal(l.Fence(), fence)
			}
			fence = l.Fence()
			if err := errors.Join(l.Release(ctx), l.Release(ctx)); err != nil {
				t.Fatal(err)
			}
			lost(t, l)
		}
		l := win(t, there, entry)
		if l.Fence() <= fence {
			t.Fatal(l.Fence(), fence)
		}
	})

	t.Run("versions", func(t *testing.T) {
		here, there, db := start(t)
		one := win(t, here, version(1))
		held(t, there, version(1))
		held(t, there, version(2)) // newer, while an older one is at work
		if err := one.Complete(ctx, []byte("one")); err != nil {
			t.Fatal(err)
		}
		two := win(t, here, version(2))
		held(t, there, version(3))
		held(t, there, version(2))
		for _, older := range []int64{1, 0, -5} { // what is applied is known while a newer one is at work
			if r := found(t, there, version(older)); r.Version != 1 || !r.Versioned || string(r.Outputs) != "one" {
				t.Fatalf("%+v", r)
			}
		}
		expire(t, db) // its owner has died
		if r := found(t, there, version(1)); string(r.Outputs) != "one" {
			t.Fatalf("%+v", r)
		}
		again := win(t, there, version(2))
		lost(t, two)
		if err := again.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if r := found(t, there, version(1)); string(r.Outputs) != "one" {
			t.Fatalf("%+v", r)
		}
		five := win(t, there, version(5))
		if err := five.Complete(ctx, nil); err != nil {
			t.Fatal(err)
		}
		for _, older := range []int64{1, 4, 5} {
			if r := found(t, here, version(older)); r.Version != 5 || r.Outputs != nil {
				t.Fatalf("%+v", r)
			}
		}
	})

	t.Run("a version over none", func(t *testing.T) {
		here, there, _ := start(t)
		if err := win(t, here, entry).Complete(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := win(t, there, version(-1)).Complete(ctx, nil); err != nil {
			t.Fatal(err)
		}
		found(t, here, version(-1))
		found(t, here, entry)
	})

	t.Run("none over a version", func(t *testing.T) {
		here, there, _ := start(t)
		if err := win(t, here, version(1)).Complete(ctx, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if err := win(t, here, version(2)).Release(ctx); err != nil { // the attempt at a higher one failed
			t.Fatal(err)
		}
		if r := found(t, there, entry); string(r.Outputs) != "one" {
			t.Fatalf("%+v", r)
		}
		c, err := there.Claim(ctx, entry)
		if err != nil {
			t.Fatal(err)
		}
		if r := c.Recorded(); r == nil || string(r.Outputs) != "one" {
			t.Errorf("%+v", r)
		}
		if err := c.Release(); err != nil {
			t.Error(err)
		}
	})

	t.Run("clock set back", func(t *testing.T) {
		here, there, db := start(t)
		first := win(t, here, entry) // when the clock was an hour ahead
		execute(t, db, `UPDATE spillway_keys SET applied_at = applied_at + 3600000, expires_at = expires_at + 3600000, fence = fence + 3600000000`)
		second := win(t, there, entry)
		if second.Fence() <= first.Fence()+3600000000 {
			t.Fatal("the fence fell with the clock")
		}
		lost(t, first)
		execute(t, db, `UPDATE spillway_keys SET applied_at = applied_at + 800`) // that much is no other clock
		held(t, here, entry)
		execute(t, db, `UPDATE spillway_keys SET applied_at = applied_at + 3600000`)
		if err := second.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		held(t, here, entry) // what its owner renews is of the new clock
	})

	t.Run("clock set forward", func(t *testing.T) {
		here, there, db := start(t)
		first := win(t, here, entry)
		execute(t, db, `UPDATE spillway_keys SET applied_at = applied_at - 7200000, expires_at = expires_at - 7200000`)
		if second := win(t, there, entry); second.Fence() <= first.Fence() {
			t.Fatal(first.Fence(), second.Fence())
		}
		lost(t, first)
	})

	t.Run("removed", func(t *testing.T) {
		here, there, db := start(t)
		first := win(t, here, entry)
		execute(t, db, `DELETE FROM spillway_keys`)
		lost(t, first)
		if n := count(t, db, "spillway_keys"); n != 0 {
			t.Fatal("the key is back")
		}
		var second idempotency.Lease
		eventually(t, "a fence after the first one", func() bool { // by the clock, which moves in milliseconds
			execute(t, db, `DELETE FROM spillway_keys`)
			second = win(t, there, entry)
			return second.Fence() > first.Fence()
		})
		lost(t, first)
		held(t, here, entry)
	})

	t.Run("transactions", func(t *testing.T) {
		here, there, db := start(t)
		l := win(t, here, entry)
		if _, err := there.Claim(ctx, entry); !errors.Is(err, idempotency.ErrHeld) {
			t.Fatal(err)
		}
		expire(t, db)
		c, err := there.Claim(ctx, entry)
		if err != nil || c.Recorded() != nil {
			t.Fatal(err)
		}
		if err := c.Commit([]byte("claim")); err != nil {
			t.Fatal(err)
		}
		lost(t, l) // though no other lease has raised the fence
		if r := found(t, here, entry); string(r.Outputs) != "claim" {
			t.Fatalf("%+v", r)
		}
	})

	t.Run("waits for a transaction", func(t *testing.T) {
		here, there, _ := start(t)
		for _, commit := range []bool{false, true} {
			c, err := here.Claim(ctx, entry)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Release() })
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if _, err := there.Lease(short, entry, long); err == nil || errors.Is(err, idempotency.ErrHeld) {
				t.Fatal(err)
			}
			got := make(chan idempotency.Lease, 1)
			go func() {
				l, err := there.Lease(ctx, entry, long)
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			if commit {
				err = c.Commit(nil)
			} else {
				err = c.Release()
			}
			l := <-got
			if err != nil || l == nil || (l.Recorded() != nil) != commit {
				t.Fatalf("%+v, %v", l, err)
			}
			if !commit {
				_ = l.Release(ctx)
			}
		}
	})

	t.Run("any bytes", func(t *testing.T) {
		here, there, _ := start(t)
		for _, id := range []string{"a", "A", "a ", "a\x00", "\xff", "\ufffd", "'", "?", "$1", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10-1)} {
			e := idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: id}}
			l := win(t, here, e)
			held(t, there, e)
			if err := errors.Join(l.Renew(ctx), l.Complete(ctx, nil)); err != nil {
				t.Fatal(err)
			}
			found(t, there, e)
		}
	})

	t.Run("context ended", func(t *testing.T) {
		here, _, db := start(t)
		l := win(t, here, entry)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := here.Lease(ended, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "i"}}, long)
		for _, err := range []error{err, l.Renew(ended), l.Complete(ended, nil), l.Release(ended)} {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := errors.Join(l.Renew(ctx), l.Complete(ctx, nil)); err != nil || count(t, db, "spillway_keys") != 1 {
			t.Fatal(err)
		}
	})

	t.Run("one owner at a time", func(t *testing.T) {
		address, db := b.ready(t)
		stores := []idempotency.Store{b.store(db), b.store(b.open(t, address)), b.store(b.open(t, address))}
		var owners, won atomic.Int32
		var last atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for {
					l, err := stores[i%len(stores)].Lease(ctx, entry, long)
					if errors.Is(err, idempotency.ErrHeld) {
						time.Sleep(time.Duration(10+i) * time.Millisecond)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n := owners.Add(1); n != 1 {
						t.Errorf("%d owners", n)
					}
					if before := last.Swap(l.Fence()); before >= l.Fence() {
						t.Errorf("fence %d after %d", l.Fence(), before)
					}
					won.Add(1)
					time.Sleep(2 * time.Millisecond) // for another to be seen beside it
					owners.Add(-1)
					if err := l.Release(ctx); err != nil {
						t.Error(err)
					}
					return
				}
			})
		}
		wg.Wait()
		if won.Load() != 50 {
			t.Fatal(won.Load(), " have had the key")
		}
	})
}

// Feature I3: of many that come at once to a lease that is over exactly one gets it, and so with a key that is new.
func TestLeaseRace(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		address, db := b.ready(t)
		stores := []idempotency.Store{b.store(db), b.store(b.open(t, address)), b.store(b.open(t, address))}
		for round := range 10 {
			var won atomic.Int32
			atOnce(t, 24, func(i int) error {
				_, err := stores[i%len(stores)].Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
				if err == nil {
					won.Add(1)
				} else if errors.Is(err, idempotency.ErrHeld) {
					return nil
				}
				return err
			})
			if won.Load() != 1 {
				t.Fatalf("round %d: %d owners", round, won.Load())
			}
			execute(t, db, `UPDATE spillway_keys SET expires_at = 0`)
		}
	})
}

// Feature I3: an error names the store and wraps its cause.
func TestLeaseErrors(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		store := b.store(db)
		l, err := store.Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		_, err = store.Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
		name := map[string]string{"mariadb": "mysql"}[b.name]
		if name == "" {
			name = b.name
		}
		for what, err := range map[string]error{
			"lease the key": err, "renew the lease": l.Renew(t.Context()), "complete the lease": l.Complete(t.Context(), nil), "give the lease up": l.Release(t.Context()),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s: %s: ", name, what)) || errors.Is(err, idempotency.ErrLeaseLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
