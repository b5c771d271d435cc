package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/mysql"
)

const (
	// holdMySQL lets a deadlock be followed by a new transaction, where by default each statement after it would commit on
	// its own: what a handler writes then, having ignored the error, is rolled back with the claim.
	holdMySQL   = `SET @spillway_autocommit = @@autocommit, autocommit = 0`
	returnMySQL = `SET autocommit = @spillway_autocommit`
	// The savepoint lives as long as the transaction that entered the key, however that one ends.
	markMySQL  = `SAVEPOINT spillway_key`
	probeMySQL = `RELEASE SAVEPOINT spillway_key`
)

// mysqlClaim holds a connection of its own, so that one whose transaction did not end cleanly can be thrown away instead
// of going back to the pool with it.
type mysqlClaim struct {
	row      keys.Row
	conn     *sql.Conn
	tx       *sql.Tx
	cancel   context.CancelFunc
	recorded *keys.Record // the key was there already
	ended    bool
}

func (c *mysqlClaim) Tx() *sql.Tx       { return c.tx }
func (c *mysqlClaim) Recorded() *Record { return (*Record)(c.recorded) }

func (c *mysqlClaim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("mysql: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return c.guard(func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("mysql: commit of a key that was applied before"), c.rollback())
		}
		if err := c.record(outputs); err != nil {
			c.throwAway()
			return fmt.Errorf("mysql: record the outputs: %w", err)
		}
		if err := c.tx.Commit(); err != nil {
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
	_, err := c.tx.ExecContext(ctx, probeMySQL)
	switch {
	case mysql.Number(err) == mysql.NoSavepoint && c.committed():
		return fmt.Errorf("the key is committed already, by a COMMIT or a statement that commits before it runs, such as "+
			"CREATE TABLE: %w", sql.ErrTxDone)
	case mysql.Number(err) == mysql.NoSavepoint:
		return fmt.Errorf("%w: %w", errUndone, sql.ErrTxDone)
	case err != nil || len(outputs) == 0: // then NULL stands there already
		return err
	}
	return keys.InMySQL.RecordOutputs(ctx, c.tx, c.row, outputs)
}

// committed tells whether the row that this claim entered is in the database, once its transaction has ended. A duplicate
// that entered the same key meanwhile did so at another time.
func (c *mysqlClaim) committed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := keys.InMySQL.Entered(ctx, c.conn, c.row)
	return err == nil && found
}

func (c *mysqlClaim) Release() error {
	if c.ended {
		return nil
	}
	return c.guard(c.rollback)
}

// rollback returns an error only where the handler committed.
func (c *mysqlClaim) rollback() error {
	if c.recorded == nil && c.over() {
		committed := c.committed()
		c.throwAway()
		if committed {
			return fmt.Errorf("mysql: roll back: the key is committed: %w", sql.ErrTxDone)
		}
		return nil
	}
	if c.tx.Rollback() != nil { // without its connection the transaction is over as well
		c.throwAway()
		return nil
	}
	c.end()
	return nil
}

// over tells whether the transaction that entered the key has ended: by the handler, in SQL or by the methods of Tx, or by
// the server.
func (c *mysqlClaim) over() bool {
	_, err := c.tx.ExecContext(context.Background(), probeMySQL)
	return errors.Is(err, sql.ErrTxDone) || mysql.Number(err) == mysql.NoSavepoint
}

// end gives the connection back to the pool as it was, or closes it.
func (c *mysqlClaim) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := c.conn.ExecContext(ctx, returnMySQL); err != nil {
		discard(c.conn)
	}
	c.close()
}

// throwAway ends the claim and closes the connection itself: the server rolls back what was open on it.
func (c *mysqlClaim) throwAway() {
	if c.tx != nil {
		_ = c.tx.Rollback()
	}
	discard(c.conn)
	c.close()
}

func (c *mysqlClaim) close() {
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
	_ = c.conn.Close() // does nothing where it was discarded
}

func (c *mysqlClaim) guard(work func() error) error {
	return guarded(c.conn, func() {
		c.ended = true
		if c.cancel != nil {
			c.cancel()
		}
	}, work)
}
