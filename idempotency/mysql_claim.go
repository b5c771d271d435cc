package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// mysqlClaim is a transaction on a connection of its own. The handler has a shadow of it, which sees every statement: so
// what can end the transaction is watched where it happens, and costs nothing where it does not.
type mysqlClaim struct {
	key      Key
	row      keytable.Row
	store    *mysqlStore
	conn     *sql.Conn
	shadow   *sqlproxy.Transaction
	recorded *keytable.Record // the key was there already
	held     bool             // a statement came that may end the transaction: autocommit is off
	marked   bool             // and the savepoint is set
	spoiled  error            // or could not be: the transaction is in no state to go on
	doubt    error            // a statement failed with this, and perhaps the server rolled everything back
	gone     error            // it did, and nothing more is let through
	ended    bool
	lost     bool // the connection, when the claim was rolled back
}

// lostConnection is for the receiver, once the claim has ended.
func (c *mysqlClaim) lostConnection() bool { return c.lost }

func (c *mysqlClaim) Recorded() *Record { return (*Record)(c.recorded) }

func (c *mysqlClaim) Tx() *sql.Tx {
	if c.shadow == nil {
		return nil // the key was applied: nobody writes
	}
	return c.shadow.Tx()
}

func (c *mysqlClaim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("mysql: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return c.guard(func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("mysql: commit of a key that was applied before"), c.rollback())
		}
		switch left := c.shadow.Stop(); {
		case left.Reading:
			c.throwAway()
			return errors.New("mysql: commit: rows are open: close them before the handler returns")
		case left.Ended:
			return errors.Join(fmt.Errorf("mysql: commit: the handler has called Commit or Rollback: %w", sql.ErrTxDone), c.rollback())
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
func (c *mysqlClaim) record(outputs []byte) error {
	ctx := context.Background()
	switch over, err := c.over(ctx); {
	case c.spoiled != nil:
		return c.spoiled
	case over && c.committed(ctx):
		return fmt.Errorf("the key is committed already, by a COMMIT or a statement that commits before it runs, such as "+
			"CREATE TABLE: %w", sql.ErrTxDone)
	case over:
		return fmt.Errorf("%w: %w", errUndone, sql.ErrTxDone)
	case err != nil || len(outputs) == 0: // then NULL stands there already
		return err
	}
	return keytable.InMySQL.RecordOutputs(ctx, c.conn, c.row, outputs)
}

// over tells whether the transaction that entered the key has ended, by the handler in SQL or by the server.
func (c *mysqlClaim) over(ctx context.Context) (bool, error) {
	if c.marked {
		_, err := c.conn.ExecContext(ctx, probeMySQL)
		return mysql.Number(err) == mysql.NoSavepoint, err
	}
	err := c.resolveDoubt(ctx)
	return c.gone != nil, err
}

// committed tells whether the row that this claim entered is in the database, once its transaction has ended. A duplicate
// that entered the same key meanwhile has another nonce.
func (c *mysqlClaim) committed(ctx context.Context) bool {
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

func (c *mysqlClaim) Release() error {
	if c.ended {
		return nil
	}
	return c.guard(c.rollback)
}

// rollback returns an error only where the handler committed, in SQL.
func (c *mysqlClaim) rollback() error {
	ctx := context.Background()
	if c.shadow != nil && c.shadow.Stop().Reading || c.spoiled != nil {
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
	if _, err := c.conn.ExecContext(ctx, `ROLLBACK`); err != nil { // without its connection the transaction is over as well
		c.lost = true
		c.throwAway()
		return nil
	}
	c.end()
	return nil
}

// end gives the connection back to the pool as it was, or closes it.
func (c *mysqlClaim) end() {
	if c.held {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := c.conn.ExecContext(ctx, returnMySQL); err != nil {
			discard(c.conn)
		}
	}
	c.close()
}

// throwAway ends the claim and closes the connection itself: the server rolls back what was open on it.
func (c *mysqlClaim) throwAway() {
	discard(c.conn)
	c.close()
}

func (c *mysqlClaim) close() {
	c.ended = true
	if c.shadow != nil {
		c.shadow.Close()
	}
	_ = c.conn.Close() // does nothing where it was discarded
}

func (c *mysqlClaim) guard(work func() error) error {
	return guarded(c.conn, func() {
		c.ended = true
		if c.shadow != nil {
			c.shadow.Close()
		}
	}, work)
}
