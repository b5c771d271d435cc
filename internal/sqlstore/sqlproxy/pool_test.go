package sqlproxy_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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

// What one transaction leaves serves the next, whose connection is another.
func TestPool(t *testing.T) {
	var pool sqlproxy.Pool
	first, a := on(t, &pool)
	testkit.Must(first.Tx().Exec("one"))
	late := testkit.Must(first.Tx().Prepare("late"))
	first.Close()
	first.Close() // does nothing: it must not give back twice
	second, b := on(t, &pool)
	third, c := on(t, &pool) // beside it
	testkit.Must(second.Tx().Exec("two"))
	testkit.Must(third.Tx().Exec("three"))
	testkit.Is(t, testkit.Err(first.Tx().Exec("late")), sql.ErrTxDone)
	testkit.Check(t, testkit.Err(late.Exec()) != nil, "a late prepared statement ran")
	testkit.Is(t, first.Tx().Commit(), sql.ErrTxDone)
	testkit.Equal(t, "the first connection was told", a.said[0], "one")
	testkit.Equal(t, "the second connection was told", strings.Join(b.said, " "), "two")
	testkit.Equal(t, "the third connection was told", strings.Join(c.said, " "), "three")
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
			first, _ := on(t, &pool)
			testkit.NoError(t, use(first.Tx()))
			first.Close()
			second, b := on(t, &pool)
			testkit.Must(second.Tx().Exec("two"))
			testkit.Equal(t, "said", strings.Join(b.said, " "), "two")
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
