package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Decision 8: one gate per database handle, for every caller.
func TestGateOf(t *testing.T) {
	a, b := open(t, "a"), open(t, "a")
	first, again := GateOf(a), GateOf(a)
	if first != again || first == GateOf(b) {
		t.Fatal("the gate is not that of the handle")
	}
}

// Conventions: a handle that is gone leaves nothing in the registry.
func TestGateForgotten(t *testing.T) {
	key := func() weak.Pointer[sql.DB] {
		db, err := sql.Open("sqlite", "a")
		if err != nil {
			t.Fatal(err)
		}
		GateOf(db)
		_ = db.Close()
		return weak.Make(db)
	}()
	known := func() bool {
		gates.Lock()
		defer gates.Unlock()
		_, ok := gates.of[key]
		return ok
	}
	for deadline := time.Now().Add(time.Minute); known(); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the gate is kept")
		}
	}
}

// Decision 8: the gate lets one in at a time, in the order of waiting, and waiting ends with the context.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		if err := g.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if err := g.Lock(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, i) // the race detector would see two at a time
				g.Unlock()
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		g.Unlock()
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("out of order: %v", order)
			}
		}
		if err := g.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) { // although it is free
			t.Error(err)
		}
		defer func() {
			if recover() == nil {
				t.Error("unlocking a free gate goes unnoticed")
			}
		}()
		g.Unlock()
	})
}

// Decision 8: patience with another process ends with success, another error, the context, or after 30 seconds.
func TestWhileBusy(t *testing.T) {
	busy, other := errors.New("database is locked (5) (SQLITE_BUSY)"), errors.New("disk full")
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []error{nil, other} {
			tries := 0
			if err := WhileBusy(t.Context(), func() error {
				if tries++; tries < 20 {
					return busy
				}
				return last
			}); err != last || tries != 20 {
				t.Fatal(err, tries)
			}
		}
		began := time.Now()
		if err := WhileBusy(t.Context(), func() error { return busy }); err != busy || time.Since(began).Round(time.Second) != maxBusy {
			t.Fatal(err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := WhileBusy(ctx, func() error { return busy }); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, busy) {
			t.Fatal(err)
		}
	})
}
