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

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Decision 8: one gate per database handle, for every caller.
func TestGateOf(t *testing.T) {
	a, b := testkit.Must(sql.Open("sqlite", "a")), testkit.Must(sql.Open("sqlite", "a"))
	defer func() { _ = errors.Join(a.Close(), b.Close()) }()
	first, again := GateOf(a), GateOf(a)
	testkit.Require(t, first == again && first != GateOf(b), "the gate is not that of the handle")
}

// Conventions: a handle that is gone leaves nothing in the registry.
func TestGateForgotten(t *testing.T) {
	key := func() weak.Pointer[sql.DB] {
		db := testkit.Must(sql.Open("sqlite", "a"))
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
		testkit.Require(t, !time.Now().After(deadline), "the gate is kept")
	}
}

// Decision 8: the gate lets one in at a time, in the order of waiting, and waiting ends with the context.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		testkit.NoError(t, g.Lock(t.Context()))
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				testkit.Is(t, g.Lock(t.Context()), nil)
				order = append(order, i) // the race detector would see two at a time
				g.Unlock()
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.Is(t, g.Lock(ctx), context.DeadlineExceeded)
		g.Unlock()
		wg.Wait()
		for i, got := range order {
			testkit.Require(t, got == i, "out of order: %v", order)
		}
		testkit.Is(t, g.Lock(ctx), context.DeadlineExceeded) // although it is free
		defer func() { testkit.Check(t, recover() != nil, "unlocking a free gate goes unnoticed") }()
		g.Unlock()
	})
}

// Decision 8: patience with another process ends with success, another error, the context, or after 30 seconds.
func TestWhileBusy(t *testing.T) {
	busy, other := errors.New("database is locked (5) (SQLITE_BUSY)"), errors.New("disk full")
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []error{nil, other} {
			tries := 0
			testkit.Is(t, WhileBusy(t.Context(), func() error {
				if tries++; tries < 20 {
					return busy
				}
				return last
			}), last)
			testkit.Equal(t, "tries", tries, 20)
		}
		began, always := time.Now(), func() error { return busy }
		testkit.Equal(t, "after a long time", WhileBusy(t.Context(), always), busy)
		testkit.Equal(t, "it takes", time.Since(began).Round(time.Second), maxBusy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := WhileBusy(ctx, always)
		testkit.Is(t, err, context.DeadlineExceeded)
		testkit.Is(t, err, busy)
	})
}
