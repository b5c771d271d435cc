package sqlproxy

import (
	"database/sql"
	"sync/atomic"
)

// Single is an Owner whose user has one *sql.Tx, which lasts as long as the owner's transaction.
type Single interface {
	Owner
	// Committed is the error that the user's own Commit returns.
	Committed() error
}

// Transaction is a Conn of whose *sql.DB the user sees one *sql.Tx.
type Transaction struct {
	c      Conn
	pool   *Pool
	tx     *sql.Tx
	closed atomic.Bool
}

// Tx is for the user. Its Commit and Rollback end nothing but itself.
func (t *Transaction) Tx() *sql.Tx { return t.tx }

// Use exchanges the connection. It is for an owner's Carry or Before, when no statement has run.
func (t *Transaction) Use(conn *sql.Conn) { t.c.conn = conn }

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
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.End(errOver)
	return State{Ended: t.c.ended, Reading: t.c.Reading(), broken: t.c.broken}
}

// Close stops the transaction and frees what belongs to it. It sends nothing but the end of prepared statements.
func (t *Transaction) Close() {
	// database/sql may wait for the reader, for ever if that reads into sql.RawBytes
	if left := t.Stop(); left.broken || left.Reading {
		go func() { _ = t.tx.Rollback(); _ = t.c.Close() }()
		return
	}
	switch err := t.tx.Rollback(); {
	case !t.closed.CompareAndSwap(false, true):
	case err == nil: // now no statement of it is on its way to the shell
		t.pool.put(t.c.shell)
	default: // the user ended it, and perhaps is about to
		_ = t.c.Close()
	}
}

// handle is the transaction as its one user ends it.
type handle struct{ c *Conn }

func (h handle) Commit() error {
	h.end()
	return h.c.owner.(Single).Committed()
}

func (h handle) Rollback() error {
	h.end()
	return nil
}

func (h handle) end() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.ended = h.c.ended || h.c.over == nil
}
