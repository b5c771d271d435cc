// Package sqlproxy gives a *sql.Tx to those who work in a transaction that somebody else has begun on a connection of their
// own, and will end: with statements of their own, which need not be those that a driver would send. The *sql.Tx is that of
// a sql.DB which has no server behind it, only that connection, and what begins and ends there sends nothing.
//
// The driver's connection is used inside of (*sql.Conn).Raw alone, each statement in a call of its own. So database/sql
// keeps every promise it makes to a driver, learns at once that a connection is bad, and unlocks it when a driver panics.
package sqlproxy

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"
)

// Owner is whose transaction it is. Its methods are called while nothing else runs on the connection.
type Owner interface {
	// Before is called before each statement of the user's, and may run some of the owner's own. An error refuses it.
	Before(ctx context.Context, statement string) error
	// Failed is told of the error of a statement, or of reading its rows.
	Failed(err error)
	// Committed is the error that the user's own Commit returns.
	Committed() error
}

// Carrier is an Owner that can run a statement without rows itself, together with some of its own.
type Carrier interface {
	// Enter is called before a statement is prepared. An error refuses that.
	Enter(ctx context.Context) error
	// Carry is called before Before. Where it has run the statement, Before is not called. An error refuses the statement.
	Carry(ctx context.Context, statement string, args []driver.NamedValue) (result driver.Result, carried bool, err error)
}

// Transaction is a transaction on a connection that its owner has to itself.
type Transaction struct {
	conn  *sql.Conn
	owner Owner
	pool  *Pool
	shell *shell
	tx    *sql.Tx

	mu      sync.Mutex // one statement at a time
	over    bool       // the owner lets nothing more be said
	ended   bool       // by the user
	reading int        // how many results are open, on which the connection cannot say anything else
	closed  atomic.Bool
	broken  bool // a driver panicked, and where it did so in a query database/sql waits for its end for ever
}

// errOver is what late statements get.
var errOver = fmt.Errorf("the transaction has ended: %w", sql.ErrTxDone)

// Tx is for the user. Its Commit and Rollback end nothing but itself.
func (t *Transaction) Tx() *sql.Tx { return t.tx }

// Use exchanges the connection. It is for an owner's Carry or Before, when no statement has run.
func (t *Transaction) Use(conn *sql.Conn) { t.conn = conn }

// State is how a user left a transaction.
type State struct {
	// Ended says that the user called Commit or Rollback.
	Ended bool
	// Reading says that rows are open. The connection must not be used any more.
	Reading bool
	broken  bool
}

// Stop waits for the statement that is running, if any, and lets no other begin. From then on the connection is the
// owner's alone.
func (t *Transaction) Stop() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return State{Ended: t.ended, Reading: t.reading > 0, broken: t.broken}
}

// Close stops the transaction and frees what belongs to the shadow. It sends nothing.
func (t *Transaction) Close() {
	if left := t.Stop(); left.broken || left.Reading { // database/sql may wait for who reads, for ever where that is into sql.RawBytes
		go func() { _ = t.tx.Rollback(); _ = t.shell.db.Close() }()
		return
	}
	switch err := t.tx.Rollback(); {
	case !t.closed.CompareAndSwap(false, true):
	case err == nil: // now no statement of it is on its way to the shell
		t.pool.put(t.shell)
	default: // the user ended it, and perhaps is about to
		_ = t.shell.db.Close()
	}
}

// run lets work use the driver's connection for a statement, if the transaction still takes any.
func (t *Transaction) run(ctx context.Context, statement string, work func(driver.Conn) error) error {
	return t.runOr(ctx, statement, nil, work)
}

// runOr is run for a statement that the owner may carry.
func (t *Transaction) runOr(ctx context.Context, statement string, carry func() (bool, error), work func(driver.Conn) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return errOver
	}
	if carried, err := t.askLocked(ctx, statement, carry); carried || err != nil {
		return err
	}
	return t.observeLocked(t.useLocked(work))
}

// askLocked lets the owner run statements of its own, in which a driver may panic too.
func (t *Transaction) askLocked(ctx context.Context, statement string, carry func() (bool, error)) (carried bool, err error) {
	t.broken = true
	if _, ok := t.owner.(Carrier); ok && carry != nil {
		carried, err = carry()
	}
	if !carried && err == nil {
		err = t.owner.Before(ctx, statement)
	}
	t.broken = false
	return carried, err
}

func (t *Transaction) useLocked(work func(driver.Conn) error) error {
	t.broken = true
	err := t.conn.Raw(func(raw any) error {
		conn, ok := raw.(driver.Conn)
		if !ok {
			return fmt.Errorf("the driver's connection %T is no driver.Conn", raw)
		}
		return work(conn)
	})
	t.broken = false
	return err
}

func (t *Transaction) observeLocked(err error) error {
	if err != nil && err != driver.ErrSkip {
		t.owner.Failed(err)
	}
	return err
}
