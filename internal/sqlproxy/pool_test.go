package sqlproxy_test

import (
	"context"
	"database/sql"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlproxy"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// on begins a transaction of the pool on a connection of its own, whose driver notes what it is told.
func on(t *testing.T, pool *sqlproxy.Pool) (*sqlproxy.Transaction, *fake) {
	t.Helper()
	f := &fake{running: make(chan struct{}), resume: make(chan struct{})}
	db := sql.OpenDB(f)
	conn := testkit.Must(db.Conn(t.Context()))
	tx := testkit.Must(pool.Begin(t.Context(), conn, &owner{}))
	t.Cleanup(func() { tx.Close(); _ = conn.Close(); _ = db.Close() })
	return tx, f
}

// openers counts the goroutines of sql.DBs that the bubble of the test has.
func openers() (n int) {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "synctest bubble") && strings.Contains(stack, "connectionOpener(") {
			n++
		}
	}
	return n
}

// What one transaction leaves serves the next, whose connection is another, and goes if no other comes.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool sqlproxy.Pool
		first, a := on(t, &pool)
		testkit.Must(first.Tx().Exec("one"))
		late := testkit.Must(first.Tx().Prepare("late"))
		first.Close()
		first.Close() // does nothing: it must not give back twice
		before := openers()
		second, b := on(t, &pool)
		if now := openers(); now != before+1 { // that of the fake's own sql.DB
			t.Errorf("%d goroutines of database/sql, want %d", now, before+1)
		}
		third, c := on(t, &pool) // beside it
		testkit.Must(second.Tx().Exec("two"))
		testkit.NoError(t, testkit.Err(third.Tx().Exec("three")))
		testkit.Is(t, testkit.Err(first.Tx().Exec("late")), sql.ErrTxDone)
		if _, err := late.Exec(); err == nil {
			t.Error("a late prepared statement ran")
		}
		testkit.Is(t, first.Tx().Commit(), sql.ErrTxDone)
		for i, f := range []*fake{a, b, c} {
			if got, want := f.said[0], []string{"one", "two", "three"}[i]; got != want || i > 0 && len(f.said) > 1 {
				t.Errorf("the connection of transaction %d was told %q", i+1, f.said)
			}
		}
		second.Close()
		third.Close()
		time.Sleep(time.Second)
		testkit.Equal(t, "goroutines of database/sql are left, want those of the three fakes", openers(), 3)
	})
}

// A transaction that its user has ended, or that is read from, leaves nothing: a caller may be on the way to it.
func TestPool_endedByUser(t *testing.T) {
	for name, use := range map[string]func(*sql.Tx) error{
		"commit":   func(tx *sql.Tx) error { _ = tx.Commit(); return nil },
		"rollback": (*sql.Tx).Rollback,
		"rows":     func(tx *sql.Tx) error { rows, err := tx.Query("rows"); _ = rows; return err },
	} {
		t.Run(name, func(t *testing.T) {
			var pool sqlproxy.Pool
			first, a := on(t, &pool)
			testkit.NoError(t, use(first.Tx()))
			first.Close()
			second, b := on(t, &pool)
			if _, err := second.Tx().Exec("two"); err != nil || len(b.said) != 1 {
				t.Errorf("%v, told %q and %q", err, a.said, b.said)
			}
		})
	}
}

// Handlers may leave goroutines behind that go on with their transaction: no other transaction hears of it.
func TestPool_stray(t *testing.T) {
	var pool sqlproxy.Pool
	var strays sync.WaitGroup
	stop, cancel := context.WithCancel(context.Background())
	for round := range 200 {
		tx, f := on(t, &pool)
		own := "own"
		for range 2 {
			strays.Go(func() {
				for stop.Err() == nil {
					if _, err := tx.Tx().Exec("stray"); err != nil {
						return
					}
					if round%3 == 0 {
						_ = tx.Tx().Commit()
					}
				}
			})
		}
		_, _ = tx.Tx().Exec(own)
		tx.Close()
		said := len(f.said)
		next, g := on(t, &pool)
		_, _ = next.Tx().Exec("next")
		next.Close()
		testkit.Require(t, len(f.said) == said, "round %d: a statement ran after Close", round)
		for _, text := range g.said {
			testkit.Require(t, text == "next", "round %d: another transaction's connection was told %q", round, g.said)
		}
	}
	cancel()
	strays.Wait()
}
