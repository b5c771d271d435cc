package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/postgres"
)

// probePostgres does nothing inside of a transaction, and fails in one that has failed, or where there is none.
const probePostgres = `SAVEPOINT spillway`

// postgresClaim holds a connection of its own, so that one whose transaction did not end cleanly can be thrown away
// instead of going back to the pool with it.
type postgresClaim struct {
	row      keys.Row
	conn     *sql.Conn
	tx       *sql.Tx
	cancel   context.CancelFunc
	recorded *keys.Record // the key was there already
	ended    bool
}

// errAborted says that the handler went on after a statement had failed. Nothing of the transaction is in the database.
var errAborted = errors.New("a statement failed, so PostgreSQL commits nothing of the transaction, and the handler went on: " +
	"return the error of a failed statement, or set a SAVEPOINT before it and roll back to that")

func (c *postgresClaim) Tx() *sql.Tx       { return c.tx }
func (c *postgresClaim) Recorded() *Record { return (*Record)(c.recorded) }

// begin leaves nothing open when it fails.
func (c *postgresClaim) begin(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("postgres: take a connection: %w", err)
	}
	c.conn = conn
	return c.guard(func() error {
		// The transaction's context ends with ctx as long as the key is not entered, and from then on with the claim alone.
		var lasting context.Context
		lasting, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
		attached := context.AfterFunc(ctx, c.cancel)
		err := c.enter(lasting)
		if detached := attached(); !detached {
			// How a driver says that it was interrupted differs, and must not decide what the error is.
			err = fmt.Errorf("postgres: wait for the key: %w", ctx.Err())
		}
		if err != nil {
			c.throwAway()
		}
		return err
	})
}

// enter inserts the key. Where it conflicts the row is committed, and READ COMMITTED lets the next statement see it.
func (c *postgresClaim) enter(ctx context.Context) (err error) {
	if c.tx, err = c.conn.BeginTx(ctx, postgres.Options); err != nil {
		return fmt.Errorf("postgres: begin: %w", err)
	}
	c.recorded, err = keys.InPostgres.Enter(ctx, c.tx, c.row)
	if err != nil {
		return fmt.Errorf("postgres: enter the key: %w", err)
	}
	return nil
}

func (c *postgresClaim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("postgres: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return c.guard(func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("postgres: commit of a key that was applied before"), c.rollback())
		}
		if err := c.record(outputs); err != nil {
			c.throwAway()
			return err
		}
		if err := c.tx.Commit(); err != nil {
			c.throwAway()
			if postgres.State(err) != "" { // the server answered
				return fmt.Errorf("postgres: commit: %w", err)
			}
			return fmt.Errorf("postgres: commit, perhaps in vain (if it was not, the key will be found): %w", err)
		}
		c.end()
		return nil
	})
}

// record writes the outputs, if any, and makes sure that the transaction is still the one that entered the key: outside
// of a transaction COMMIT is no error in PostgreSQL, and in a failed one it rolls back.
func (c *postgresClaim) record(outputs []byte) error {
	ctx := context.Background()
	_, err := c.tx.ExecContext(ctx, probePostgres)
	if err == nil && len(outputs) > 0 {
		err = keys.InPostgres.RecordOutputs(ctx, c.tx, c.row, outputs)
	}
	switch postgres.State(err) {
	case postgres.FailedTransaction:
		return fmt.Errorf("postgres: record the outputs: %w: %w", errAborted, err)
	case postgres.NoTransaction:
		return fmt.Errorf("postgres: record the outputs: there is no transaction any more: %w", sql.ErrTxDone)
	}
	if err != nil {
		return fmt.Errorf("postgres: record the outputs: %w", err)
	}
	return nil
}

// committed tells whether the row that this claim entered is in the database, once its transaction has ended.
func (c *postgresClaim) committed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := keys.InPostgres.Entered(ctx, c.conn, c.row)
	return err == nil && found
}

func (c *postgresClaim) Release() error {
	if c.ended {
		return nil
	}
	return c.guard(c.rollback)
}

// rollback returns an error only where the handler committed.
func (c *postgresClaim) rollback() error {
	if c.recorded == nil && c.over() {
		committed := c.committed()
		c.throwAway()
		if committed {
			return fmt.Errorf("postgres: roll back: the key is committed: %w", sql.ErrTxDone)
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

// over tells whether the handler has ended the transaction, by its methods or in SQL.
func (c *postgresClaim) over() bool {
	_, err := c.tx.ExecContext(context.Background(), probePostgres)
	return errors.Is(err, sql.ErrTxDone) || postgres.State(err) == postgres.NoTransaction
}

func (c *postgresClaim) end() {
	c.ended = true
	c.cancel()
	_ = c.conn.Close() // gives it back to the pool, unless it was discarded
}

// throwAway ends the claim and closes the connection itself: PostgreSQL rolls back what was open on it.
func (c *postgresClaim) throwAway() {
	if c.tx != nil {
		_ = c.tx.Rollback()
	}
	discard(c.conn)
	c.end()
}

func (c *postgresClaim) guard(work func() error) error {
	return guarded(c.conn, func() {
		c.ended = true
		if c.cancel != nil {
			c.cancel()
		}
	}, work)
}
