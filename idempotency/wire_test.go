package idempotency_test

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

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
)

// wire stands between database/sql and any driver. It tells of each statement before and after the database has it, with
// BEGIN, COMMIT and ROLLBACK for the calls that mean them, and an error of either end is the statement's.
type wire struct {
	driver.Connector
	mu            sync.Mutex
	before, after func(c *wireConn, statement string) error
	isDown        bool
	conns         map[*wireConn]bool
}

var errCut = fmt.Errorf("write: %w", syscall.ECONNRESET)

// isCommit reports whether a statement, or the last of several, commits.
func isCommit(statement string) bool { return commits.MatchString(statement) }

var commits = regexp.MustCompile(`(?i)\bCOMMIT\b`) // and not READ COMMITTED

func openWire(t testing.TB, d database, address string) (*sql.DB, *wire) {
	t.Helper()
	if d.driver == "mysql" {
		address = mysqltest.With(address, "interpolateParams=true") // one call of the driver a statement
	}
	closed, err := sql.Open(d.driver, address)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Connector: opener{closed.Driver(), address}, conns: map[*wireConn]bool{}}
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

func (w *wire) Connect(ctx context.Context) (driver.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDown {
		return nil, errCut
	}
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, wire: w}
	w.conns[c] = true
	return c, nil
}

func (w *wire) set(before, after func(*wireConn, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// wireConn is a connection. Once cut nothing reaches the database, which has rolled back.
type wireConn struct {
	driver.Conn
	wire *wire
	lost atomic.Bool
}

// cut closes the connection behind the back of database/sql.
func (c *wireConn) cut() error {
	if !c.lost.Swap(true) {
		_ = c.Conn.Close()
	}
	return errCut
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	if c.lost.Load() {
		return nil
	}
	return c.Conn.Close()
}

// do sends a statement by send.
func (c *wireConn) do(statement string, send func() error) error {
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

func (c *wireConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.do("BEGIN", func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	return &wireTx{tx, c}, err
}

func (c *wireConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.do(query, func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

// Sends is for statements that are sent at once, past database/sql.
func (c *wireConn) Sends(statements string, send func(driver.Conn) error) error {
	return c.do(statements, func() error { return send(c.Conn) })
}

func (c *wireConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.do(query, func() (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

func (c *wireConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *wireConn) ResetSession(ctx context.Context) error {
	if c.lost.Load() {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *wireConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.lost.Load() && (!ok || v.IsValid())
}

type wireTx struct {
	driver.Tx
	conn *wireConn
}

func (tx *wireTx) Commit() error   { return tx.conn.do("COMMIT", tx.Tx.Commit) }
func (tx *wireTx) Rollback() error { return tx.conn.do("ROLLBACK", tx.Tx.Rollback) }
