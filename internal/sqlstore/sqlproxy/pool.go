package sqlproxy

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// kept is how long an unused shell stays. It is short, because each shell is a goroutine, which tests may count.
const kept = 100 * time.Millisecond

// Pool begins transactions. It keeps their shells for the next ones, because a sql.DB costs a goroutine and some
// microseconds. The zero Pool is ready, and has nothing to close: a tenth of a second after the last transaction it has
// freed all shells.
type Pool struct {
	mu     sync.Mutex
	idle   []*shell
	unused int // how many of those were not needed since the last sweep
	swept  bool
}

// Begin returns a *sql.Tx in the transaction that owner has begun on conn. It lasts until Close, however ctx ends.
func (p *Pool) Begin(ctx context.Context, conn *sql.Conn, owner Single) (*Transaction, error) {
	t := &Transaction{c: Conn{conn: conn, owner: owner, shell: p.take()}, pool: p}
	t.c.shell.conn = &t.c
	var err error
	if t.tx, err = t.c.shell.db.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
		return nil, errors.Join(err, t.c.Close())
	}
	return t, nil
}

func (p *Pool) take() *shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return newShell()
	}
	s := p.idle[last]
	p.idle = p.idle[:last]
	p.unused = min(p.unused, last)
	return s
}

// put takes back a shell whose transaction has ended.
func (p *Pool) put(s *shell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
	p.sweepLaterLocked()
}

func (p *Pool) sweepLaterLocked() {
	if p.swept || len(p.idle) == 0 {
		return
	}
	p.swept, p.unused = true, len(p.idle)
	time.AfterFunc(kept, p.sweep)
}

func (p *Pool) sweep() {
	p.mu.Lock()
	old := slices.Clone(p.idle[:p.unused])
	p.idle = slices.Delete(p.idle, 0, p.unused)
	p.swept = false
	p.sweepLaterLocked()
	p.mu.Unlock()
	for _, s := range old {
		_ = s.db.Close()
	}
}

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
