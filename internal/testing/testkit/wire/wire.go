// Package wire stands between database/sql and any driver, for tests of what is said to a database, and of what a
// statement that fails, panics or loses its connection does.
package wire

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
)

// Wire calls a function before and after each statement, with BEGIN, COMMIT and ROLLBACK for the calls that mean them.
// An error of the function is the statement's.
type Wire struct {
	connector     driver.Connector
	mu            sync.Mutex
	before, after func(c *Conn, statement string) error
	down          bool
	conns         map[*Conn]bool
}

var errCut = fmt.Errorf("write: %w", syscall.ECONNRESET)

// IsCommit reports whether a statement, or the last of several, commits.
func IsCommit(statement string) bool { return commits.MatchString(statement) }

var commits = regexp.MustCompile(`(?i)\bCOMMIT\b`) // and not READ COMMITTED

// Open opens a pool whose connections go over a wire.
func Open(t testing.TB, name, address string) (*sql.DB, *Wire) {
	t.Helper()
	if name == "mysql" {
		address = mysqltest.With(address, "interpolateParams=true") // one call of the driver a statement
	}
	closed, err := sql.Open(name, address)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{connector: opener{closed.Driver(), address}, conns: map[*Conn]bool{}}
	_ = closed.Close()
	db := sql.OpenDB(w)
	t.Cleanup(func() { _ = db.Close() })
	return db, w
}

type opener struct {
	of      driver.Driver
	address string
}

func (o opener) Connect(context.Context) (driver.Conn, error) { return o.of.Open(o.address) }
func (o opener) Driver() driver.Driver                        { return o.of }

// Driver is that of the database.
func (w *Wire) Driver() driver.Driver { return w.connector.Driver() }

// Connect is for database/sql.
func (w *Wire) Connect(ctx context.Context) (driver.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errCut
	}
	conn, err := w.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, wire: w}
	w.conns[c] = true
	return c, nil
}

// Cut ends what is connected, and refuses new connections until Mend.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for conn := range w.conns {
		_ = conn.Cut()
	}
}

// Mend ends Cut.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// Set says what is called before and after each statement. An error is the statement's.
func (w *Wire) Set(before, after func(*Conn, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// Conn is a connection. Once cut nothing reaches the database, which has rolled back.
type Conn struct {
	driver.Conn
	wire *Wire
	lost atomic.Bool
}

// Cut closes the connection behind the back of database/sql.
func (c *Conn) Cut() error {
	if !c.lost.Swap(true) {
		_ = c.Conn.Close()
	}
	return errCut
}

// Close is for database/sql.
func (c *Conn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	if c.lost.Load() {
		return nil
	}
	return c.Conn.Close()
}

// do sends a statement by send.
func (c *Conn) do(statement string, send func() error) error {
	c.wire.mu.Lock()
	before, after := c.wire.before, c.wire.after
	c.wire.mu.Unlock()
	if c.lost.Load() {
		return errCut
	}
	if before != nil {
		if err := before(c, statement); err != nil {
			return err
		}
	}
	if err := send(); err != nil || after == nil {
		return err
	}
	return after(c, statement)
}

// BeginTx is for database/sql.
func (c *Conn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.do("BEGIN", func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	return &transaction{tx, c}, err
}

// ExecContext is for database/sql.
func (c *Conn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (result driver.Result, err error) {
	err = c.do(query, func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

// Sends is for statements that are sent at once, past database/sql.
func (c *Conn) Sends(statements string, send func(driver.Conn) error) error {
	return c.do(statements, func() error { return send(c.Conn) })
}

// QueryContext is for database/sql.
func (c *Conn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.do(query, func() (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

// CheckNamedValue is for database/sql.
func (c *Conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ResetSession is for database/sql.
func (c *Conn) ResetSession(ctx context.Context) error {
	if c.lost.Load() {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid is for database/sql.
func (c *Conn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.lost.Load() && (!ok || v.IsValid())
}

type transaction struct {
	driver.Tx
	conn *Conn
}

func (tx *transaction) Commit() error   { return tx.conn.do("COMMIT", tx.Tx.Commit) }
func (tx *transaction) Rollback() error { return tx.conn.do("ROLLBACK", tx.Tx.Rollback) }
