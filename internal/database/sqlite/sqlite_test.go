package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/database/schema"
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

// Decision 8: one gate per database handle, whoever asks.
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

var letters = schema.Table{
	Name:    "letters",
	Create:  []string{`CREATE TABLE IF NOT EXISTS letters (a TEXT, b TEXT, c TEXT, PRIMARY KEY (b, a))`, `CREATE INDEX IF NOT EXISTS letters_c ON letters (c)`},
	Columns: []string{"a", "b", "c"},
	Key:     []string{"b", "a"},
}

// Feature I1: a table is made once, by however many at once, and one of the same name that is another is refused.
func TestEnsure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var wg sync.WaitGroup
	for range 8 {
		db := open(t, path)
		for range 3 {
			wg.Go(func() {
				if err := Ensure(t.Context(), db, letters); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for want, change := range map[string]func(*schema.Table){
		"without column": func(l *schema.Table) { l.Columns = append(l.Columns, "d") },
		"primary key":    func(l *schema.Table) { l.Key = []string{"a", "b"} },
		"create table":   func(l *schema.Table) { l.Create = []string{"CREATE nonsense"} },
	} {
		other := letters
		change(&other)
		if err := Ensure(t.Context(), open(t, path), other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Decision 8: no database, and none that has no file.
func TestEnsureRefuses(t *testing.T) {
	if err := Ensure(t.Context(), nil, letters); err == nil {
		t.Error("a nil db passes")
	}
	for _, dsn := range []string{":memory:", "", "file::memory:?cache=shared"} {
		if err := Ensure(t.Context(), open(t, dsn), letters); err == nil || !strings.Contains(err.Error(), "no file") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}
