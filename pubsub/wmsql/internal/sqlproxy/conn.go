// Package sqlproxy gives handlers a *sql.Tx each in a transaction that a subscription keeps. The owner has begun the
// transaction on a connection that it has to itself, and will end it. Open returns a Conn with a *sql.DB: each *sql.Tx
// that begins there is a savepoint of the owner's. What the users run goes to that connection, one statement at a time.
//
// The owner sees each statement before it runs, and each error. Once the owner has ended the Conn, late statements get
// an error that wraps sql.ErrTxDone.
//
// The driver's connection is used inside of (*sql.Conn).Raw alone, each statement in a call of its own. So database/sql
// keeps every promise that it makes to a driver, learns at once that a connection is bad, and unlocks it when a driver
// panics.
//
// A handler with the *sql.Tx of the batch itself would undo the messages of others with its Rollback and commit them
// with its Commit. Five more promises of package wmsql need a look at the statements: a running one is interrupted when
// the message's time is over; one that is larger than the server takes is refused, for which the server would close the
// connection; a deadlock or a lost connection is not counted for the message; the batch ends after a statement that
// leaves something in the session; and an idle connection is watched, but not while rows are read.
package sqlproxy

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
)

// Owner has begun a transaction on a connection of its own. Its methods are called with the Conn locked, so that
// nothing else runs on the connection.
type Owner interface {
	// Before is called before each statement of the user's, and may run some of the owner's own. An error refuses it.
	Before(statement string, args []driver.NamedValue) error
	// Failed is called with the error of a statement, or of reading its rows, and the context that it ran with. It
	// returns the error that the user gets.
	Failed(ctx context.Context, err error) error
	// Begin returns what ends the transaction that the user begins inside of the owner's.
	Begin(options driver.TxOptions) (driver.Tx, error)
}

// Conn is the owner's connection as the user sees it.
type Conn struct {
	owner    Owner
	conn     *sql.Conn
	db       *sql.DB                // whose connections all are conn
	life     context.Context        // ends all statements
	prepared map[string]driver.Stmt // kept for the owner, if not nil

	raw  func(any) error // runs work; made once, because each statement needs one
	work work
	call call

	mu          sync.Mutex // one statement at a time
	over        error      // why nothing can be run any more
	reading     int        // how many results are open, on which the connection can run nothing else
	broken      bool       // a driver panicked; if that was in a query, database/sql waits for its end for ever
	unavailable bool       // the owner may use the connection for something else
}

// errOver is what late statements get.
var errOver = fmt.Errorf("the transaction has ended: %w", sql.ErrTxDone)

// Open returns the Conn for the users of conn, whose *sql.DB is DB. The end of life interrupts each statement. Prepared
// statements are kept in prepared, which lasts as long as conn and may be nil.
func Open(life context.Context, conn *sql.Conn, owner Owner, prepared map[string]driver.Stmt) *Conn {
	c := &Conn{owner: owner, conn: conn, life: life, prepared: prepared}
	c.db = sql.OpenDB(connector{c})
	c.raw = func(raw any) error {
		conn, ok := raw.(driver.Conn)
		if !ok {
			return fmt.Errorf("the driver's connection %T is no driver.Conn", raw)
		}
		return c.work(&c.call, conn)
	}
	return c
}

// DB is for the users.
func (c *Conn) DB() *sql.DB { return c.db }

// Lock waits for the statement that is running, and keeps others from running. It is for what the owner itself runs on
// the connection. What the methods of an Owner run is locked already.
func (c *Conn) Lock() { c.mu.Lock() }

// TryLock locks the Conn if no statement is running.
func (c *Conn) TryLock() bool { return c.mu.TryLock() }

// Unlock lets the users' statements run again.
func (c *Conn) Unlock() { c.mu.Unlock() }

// Over is why the users' statements are refused, or nil. The Conn must be locked.
func (c *Conn) Over() error { return c.over }

// End refuses all statements with why from now on, unless they are refused already. The Conn must be locked.
func (c *Conn) End(why error) {
	if c.over == nil {
		c.over = why
	}
}

// Reading reports whether rows are open, so that the connection can run nothing else. The Conn must be locked.
func (c *Conn) Reading() bool { return c.reading > 0 }

// Exec runs a statement of the owner's own, without arguments. The Conn must be locked.
func (c *Conn) Exec(ctx context.Context, statement string) error {
	_, err := c.useLocked(ctx, call{statement: statement}, execute)
	if err == driver.ErrSkip {
		return errors.New("the driver's connection cannot execute a statement without preparing it")
	}
	return err
}

// Close frees the *sql.DB of a Conn that has ended. It sends nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.End(errOver)
	c.unavailable = true
	c.mu.Unlock()
	return c.db.Close()
}

// bind lets a statement end with life as well as with its own context.
func (c *Conn) bind(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil {
		return c.life, func() {}
	}
	bound, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return bound, func() { stop(); cancel() }
}

// exec runs a statement without rows.
func (c *Conn) exec(ctx context.Context, in call, work work) (driver.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	ctx, release := c.bind(ctx)
	defer release()
	if err := c.beforeLocked(in); err != nil {
		return nil, err
	}
	out, err := c.useLocked(ctx, in, work)
	return out.result, c.observeLocked(ctx, err)
}

// query runs a statement with rows, whose context must live until the rows are closed.
func (c *Conn) query(ctx context.Context, in call, work work) (driver.Rows, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	ctx, release := c.bind(ctx)
	if err := c.beforeLocked(in); err != nil {
		release()
		return nil, err
	}
	out, err := c.useLocked(ctx, in, work)
	if err = c.observeLocked(ctx, err); err != nil {
		release()
		return nil, err
	}
	c.reading++
	return &rows{out.rows, c, ctx, release}, nil
}

func (c *Conn) beforeLocked(in call) error {
	c.broken = true
	err := c.owner.Before(in.statement, in.args)
	c.broken = false
	return err
}

func (c *Conn) observeLocked(ctx context.Context, err error) error {
	if err == nil || err == driver.ErrSkip {
		return err
	}
	return c.owner.Failed(ctx, err)
}

// call is one use of the driver's connection: what goes in, and what comes out.
type call struct {
	ctx       context.Context
	statement string
	args      []driver.NamedValue
	stmt      driver.Stmt // was prepared, or comes out
	rows      driver.Rows // are read, or come out
	row       []driver.Value
	value     *driver.NamedValue
	result    driver.Result
}

type work func(*call, driver.Conn) error

// useLocked gives the driver's connection to work.
func (c *Conn) useLocked(ctx context.Context, in call, work work) (out call, err error) {
	c.call, c.work = in, work
	c.call.ctx = ctx
	c.broken = true
	err = c.conn.Raw(c.raw)
	c.broken = false
	out, c.call = c.call, call{}
	return out, err
}

// quietly is for what sends no statement: the owner need not know.
func (c *Conn) quietly(in call, work work) (call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return call{}, c.over
	}
	return c.useLocked(context.Background(), in, work)
}
