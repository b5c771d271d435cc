// Package mysqlclaim is the claim of a key in MySQL or MariaDB: a Claim begins and ends it, enters the key,
// and finds out whether the handler or the server has ended the transaction meanwhile.
package mysqlclaim

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// Store makes the claims of one *sql.DB.
type Store struct {
	DB      *sql.DB
	Largest int         // how many bytes of outputs a statement takes, or 0 if that is not known
	plain   atomic.Bool // the server knows no compound statements
	proxies sqlproxy.Pool
}

// Claim is a transaction on a connection of its own. The handler has a shadow of it, which sees every statement: so
// what can end the transaction is watched where it happens, and costs nothing where it does not.
type Claim struct {
	row      keytable.Row
	store    *Store
	conn     *sql.Conn
	proxy    *sqlproxy.Transaction
	recorded *keytable.Record // the key was there already
	held     bool             // a statement came that may end the transaction: autocommit is off
	marked   bool             // and the savepoint is set
	spoiled  error            // or could not be: the transaction is in no state to go on
	doubt    error            // a statement failed with this, and perhaps the server rolled everything back
	gone     error            // it did, and nothing more is let through
	ended    bool
	lost     bool // the connection, when the claim was rolled back
}

// LostConnection reports whether the connection was lost when the claim was rolled back.
func (c *Claim) LostConnection() bool { return c.lost }

// Recorded returns what was recorded when the key was applied before, or nil.
func (c *Claim) Recorded() *keytable.Record { return c.recorded }

// Tx returns the transaction for the handler.
func (c *Claim) Tx() *sql.Tx {
	if c.proxy == nil {
		return nil // the key was applied: there is nothing to write
	}
	return c.proxy.Tx()
}

// Commit records outputs and commits.
func (c *Claim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("mysql: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return c.guard(func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("mysql: commit of a key that was applied before"), c.rollback())
		}
		switch left := c.proxy.Stop(); {
		case left.Reading:
			c.throwAway()
			return errors.New("mysql: commit: rows are open: close them before the handler returns")
		case left.Ended:
			return errors.Join(fmt.Errorf("mysql: commit: the handler has called Commit or Rollback: %w",
				sql.ErrTxDone),
				c.rollback())
		}
		if err := c.record(outputs); err != nil {
			c.throwAway()
			return fmt.Errorf("mysql: record the outputs: %w", err)
		}
		if _, err := c.conn.ExecContext(context.Background(), `COMMIT`); err != nil {
			c.throwAway()
			if mysql.Number(err) != 0 { // the server answered
				return fmt.Errorf("mysql: commit: %w", err)
			}
			return fmt.Errorf("mysql: commit, perhaps in vain (if it was not, the key will be found): %w", err)
		}
		c.end()
		return nil
	})
}

// record writes the outputs, if any, and makes sure that the transaction is still the one that entered the key: after
// any other the UPDATE and the COMMIT would be no errors.
func (c *Claim) record(outputs []byte) error {
	ctx := context.Background()
	switch over, err := c.over(ctx); {
	case c.spoiled != nil:
		return c.spoiled
	case over && c.committed(ctx):
		return fmt.Errorf("the key is committed already, by a COMMIT or a statement that commits before it runs, such as "+
			"CREATE TABLE: %w", sql.ErrTxDone)
	case over:
		return fmt.Errorf("%w: %w", claims.ErrUndone, sql.ErrTxDone)
	case err != nil || len(outputs) == 0: // then NULL stands there already
		return err
	}
	return keytable.InMySQL.RecordOutputs(ctx, c.conn, c.row, outputs, c.store.Largest)
}

// over reports whether the transaction that entered the key has ended, by the handler in SQL or by the server.
func (c *Claim) over(ctx context.Context) (bool, error) {
	if c.marked {
		_, err := c.conn.ExecContext(ctx, probeMark)
		return mysql.Number(err) == mysql.NoSavepoint, err
	}
	err := c.resolveDoubt(ctx)
	return c.gone != nil, err
}

// committed reports whether the row that this claim entered is in the database, once its transaction has ended. A
// duplicate that entered the same key meanwhile has another nonce.
func (c *Claim) committed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := keytable.InMySQL.Entered(ctx, c.conn, c.row)
	if mysql.Number(err) == mysql.NotLocked { // the handler locked tables, which committed, and ours is not among them
		_, err = c.conn.ExecContext(ctx, `ROLLBACK`)
		if err == nil {
			_, err = c.conn.ExecContext(ctx, `UNLOCK TABLES`)
		}
		if err == nil {
			found, err = keytable.InMySQL.Entered(ctx, c.conn, c.row)
		}
	}
	return err == nil && found
}

// Release rolls back, unless the claim has ended.
func (c *Claim) Release() error {
	if c.ended {
		return nil
	}
	return c.guard(c.rollback)
}

// rollback returns an error only where the handler committed, in SQL.
func (c *Claim) rollback() error {
	ctx := context.Background()
	if c.proxy != nil && c.proxy.Stop().Reading || c.spoiled != nil {
		c.lost = outage.Away(c.spoiled)
		c.throwAway()
		return nil
	}
	if c.marked {
		if over, _ := c.over(ctx); over {
			committed := c.committed(ctx)
			c.throwAway()
			if committed {
				return fmt.Errorf("mysql: roll back: the key is committed: %w", sql.ErrTxDone)
			}
			return nil
		}
	}
	// without its connection the transaction is over as well
	if _, err := c.conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		c.lost = true
		c.throwAway()
		return nil
	}
	c.end()
	return nil
}

// end gives the connection back to the pool as it was, or closes it.
func (c *Claim) end() {
	if c.held {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := c.conn.ExecContext(ctx, giveBack); err != nil {
			claims.Discard(c.conn)
		}
	}
	c.close()
}

// throwAway ends the claim and closes the connection itself: the server rolls back what was open on it.
func (c *Claim) throwAway() {
	claims.Discard(c.conn)
	c.close()
}

func (c *Claim) close() {
	c.ended = true
	if c.proxy != nil {
		c.proxy.Close()
	}
	_ = c.conn.Close() // does nothing where it was discarded
}

func (c *Claim) guard(work func() error) error {
	return claims.Guard(c.conn, func() {
		go claims.Discard(c.conn)
		c.ended = true
		if c.proxy != nil {
			c.proxy.Close()
		}
	}, work)
}

const (
	// maxPause is how long a claim pauses at most before it asks for its key again.
	maxPause = 100 * time.Millisecond
	// notUnderstood is the number of a syntax error.
	notUnderstood = 1064
)

// Begin enters the key, and waits while another transaction holds the same one. It leaves nothing open when it fails.
func (s *Store) Begin(ctx context.Context, row keytable.Row) (*Claim, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("mysql: take a connection: %w", err)
	}
	c := &Claim{row: row, store: s, conn: conn}
	err = c.guard(func() error {
		err := c.enterInTurn(ctx)
		if err == nil && c.recorded == nil {
			c.proxy, err = c.store.proxies.Begin(ctx, conn, c)
		}
		if err == nil {
			return nil
		}
		c.throwAway()
		// how a driver says that it was interrupted differs, and must not decide what the error is
		if ctx.Err() != nil {
			return fmt.Errorf("mysql: wait for the key: %w", ctx.Err())
		}
		return fmt.Errorf("mysql: begin, and enter the key: %w", err)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// enterInTurn enters the key, in a new transaction each time the server ends the wait for it: after
// innodb_lock_wait_timeout, and with a deadlock when the transaction ahead rolls back and several waited for it. Each
// of those holds a lock on the key's place then, so that none of them could insert.
func (c *Claim) enterInTurn(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		err := c.enter(ctx)
		if !mysql.Undone(err) {
			return err
		}
		if _, failed := c.conn.ExecContext(ctx, `ROLLBACK`); failed != nil || !wait.For(ctx, rand.N(pause)) {
			return err
		}
	}
}

// enter enters the key. Where it is a duplicate its row is committed, and READ COMMITTED lets the next statement see
// it.
func (c *Claim) enter(ctx context.Context) error {
	c.row.At = time.Now().UnixMilli()
	err := c.beginWithKey(ctx)
	if mysql.Number(err) != mysql.Duplicate {
		return err
	}
	if !c.row.Versioned {
		c.recorded, err = keytable.InMySQL.Resolve(ctx, c.conn, c.row)
		if !errors.Is(err, sql.ErrNoRows) { // else it was purged in between
			return err
		}
	}
	c.recorded, err = keytable.InMySQL.Enter(ctx, c.conn, c.row)
	return err
}

// beginWithKey begins the transaction and inserts the key: in one compound statement, as MariaDB knows them, or in
// three. A compound that fails, at a duplicate say, leaves the transaction open.
func (c *Claim) beginWithKey(ctx context.Context) error {
	const isolation, begin = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, `START TRANSACTION`
	enter := keytable.EnterMySQL(c.row)
	if !c.store.plain.Load() {
		_, err := c.conn.ExecContext(ctx, `BEGIN NOT ATOMIC `+isolation+`; `+begin+`; `+enter+`; END`)
		if mysql.Number(err) != notUnderstood {
			return err
		}
		c.store.plain.Store(true)
	}
	for _, statement := range []string{isolation, begin, enter} {
		if _, err := c.conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Around a statement that may end the transaction:
const (
	// hold lets an end be followed by a new transaction, where by default each statement after it would commit on its
	// own: what a handler writes then is rolled back with the claim.
	hold     = `SET @spillway_autocommit = @@autocommit, autocommit = 0`
	giveBack = `SET autocommit = @spillway_autocommit`
	// The savepoint lives as long as the transaction that entered the key, however that one ends.
	setMark   = `SAVEPOINT spillway_key`
	probeMark = `RELEASE SAVEPOINT spillway_key`
)

// Before is called by the proxy. The mark stands before all savepoints of the handler's own, so that none can take it
// back.
func (c *Claim) Before(ctx context.Context, statement string, _ []driver.NamedValue) error {
	if c.doubt != nil && c.gone == nil {
		if err := c.resolveDoubt(ctx); err != nil {
			return err
		}
	}
	if err := cmp.Or(c.spoiled, c.gone); err != nil {
		return err
	}
	if c.marked || sqlproxy.Plain(statement, "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH") {
		return nil
	}
	return c.mark(ctx)
}

// mark makes ready for a statement that may end the transaction. If it fails, the state of the transaction is unknown.
func (c *Claim) mark(ctx context.Context) error {
	c.spoiled, c.held = errNotReady, true
	for _, prepare := range []string{hold, setMark} {
		if _, err := c.conn.ExecContext(ctx, prepare); err != nil {
			c.spoiled = fmt.Errorf("%w: %w", errNotReady, err)
			return c.spoiled
		}
	}
	c.spoiled, c.marked = nil, true
	return nil
}

var errNotReady = errors.New("mysql: cannot make ready for a statement that may end the transaction")

// Failed is called by the proxy. After a deadlock the server has rolled back, after most other errors it has not: the
// key tells.
func (c *Claim) Failed(_ context.Context, err error) error {
	switch number := mysql.Number(err); {
	case number == mysql.Deadlock:
		c.lose(err)
	case number != 0 && !c.marked && c.doubt == nil:
		c.doubt = err
	}
	return err
}

// Committed is called by the proxy.
func (c *Claim) Committed() error { return claims.CommittedByHandler("mysql", c.row) }

// resolveDoubt asks for the key, which a rollback took away. An error means that it is unknown.
func (c *Claim) resolveDoubt(ctx context.Context) error {
	if c.doubt == nil || c.gone != nil {
		return nil
	}
	there, err := keytable.InMySQL.Entered(ctx, c.conn, c.row)
	if err != nil {
		return fmt.Errorf("mysql: find out whether the transaction goes on after an error: %w", err)
	}
	if !there {
		c.lose(c.doubt)
	}
	c.doubt = nil
	return nil
}

// lose lets no statement follow, which would commit on its own.
func (c *Claim) lose(because error) {
	c.gone = fmt.Errorf("mysql: the server rolled the transaction back when a statement failed: %w", because)
}
