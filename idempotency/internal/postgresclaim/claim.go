// Package postgresclaim is the claim of a key in PostgreSQL: a transaction of database/sql whose first statement enters
// the key. Before the commit it asks whether the transaction is still the one that entered the key, because a handler
// can end it in SQL.
package postgresclaim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Claim is a transaction on a connection of its own.
type Claim struct {
	db       *sql.DB
	row      keytable.Row
	conn     *sql.Conn
	tx       *sql.Tx
	recorded *keytable.Record // the key was there already
	ended    bool
	stuck    bool // database/sql waits for the handler
	lost     bool // the connection, when the claim was rolled back
}

// ErrAborted says that the handler went on after a statement had failed. Nothing of the transaction is in the database.
var ErrAborted = errors.New("a statement failed, so PostgreSQL commits nothing of the transaction, and the handler went on: " +
	"return the error of a failed statement, or set a SAVEPOINT before it and roll back to that")

// LostConnection reports whether the connection was lost when the claim was rolled back.
func (c *Claim) LostConnection() bool { return c.lost }

// Recorded returns what was recorded when the key was applied before, or nil.
func (c *Claim) Recorded() *keytable.Record { return c.recorded }

// Tx returns the transaction for the handler.
func (c *Claim) Tx() *sql.Tx { return c.tx }

// Conn returns the connection of the transaction.
func (c *Claim) Conn() *sql.Conn { return c.conn }

// Begin enters the key, and waits while another transaction holds the same one. It leaves nothing open when it fails.
func Begin(ctx context.Context, db *sql.DB, row keytable.Row) (*Claim, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: take a connection: %w", err)
	}
	c := &Claim{db: db, row: row, conn: conn}
	if err := claims.Guard(conn, c.abandon, func() error { return c.begin(ctx) }); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Claim) begin(ctx context.Context) (err error) {
	defer claims.CutOff(ctx, claims.Driver(c.conn))()
	// A handler that acks its message ends ctx, and not the transaction.
	c.tx, err = c.conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil {
		c.recorded, err = keytable.EnterPostgres(ctx, c.tx, c.row)
	}
	if err == nil {
		return nil
	}
	if c.tx != nil {
		_ = c.tx.Rollback()
	}
	c.end()
	if ctx.Err() != nil { // how a driver says that it was interrupted differs, and must not decide what the error is
		return fmt.Errorf("postgres: wait for the key: %w", ctx.Err())
	}
	return fmt.Errorf("postgres: begin, and enter the key: %w", Lost(err))
}

// Commit records outputs and commits.
func (c *Claim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("postgres: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return claims.Guard(c.conn, c.abandon, func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("postgres: commit of a key that was applied before"), c.rollback())
		}
		ctx := context.Background()
		if err := c.record(ctx, outputs); err != nil {
			_ = c.rollback()
			return fmt.Errorf("postgres: commit: %w", Lost(err))
		}
		err := c.tx.Commit()
		c.end()
		switch {
		case err == nil:
			return nil
		case postgres.State(err) != "": // the server answered
			return fmt.Errorf("postgres: commit: %w", err)
		}
		return fmt.Errorf("postgres: commit, perhaps in vain (if it was not, the key will be found): %w", Lost(err))
	})
}

// record records the outputs, if any, and makes sure that the transaction is still the one that entered the key.
func (c *Claim) record(ctx context.Context, outputs []byte) error {
	ours, err := keytable.ProvePostgres(ctx, c.tx, c.row, len(outputs) > 0)
	switch {
	case postgres.State(err) == postgres.FailedTransaction:
		return fmt.Errorf("%w: %w", ErrAborted, err)
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("the handler has called Commit or Rollback: %w", err)
	case err != nil && postgres.State(err) == "":
		return fmt.Errorf("look at the transaction (where rows are open, close them before the handler returns): %w", err)
	case err != nil:
		return fmt.Errorf("look at the transaction: %w", err)
	case !ours:
		return fmt.Errorf("the key is not this transaction's: the handler ended the one it was given: %w", sql.ErrTxDone)
	case len(outputs) == 0: // then NULL stands there already
		return nil
	}
	if err := keytable.InPostgres.RecordOutputs(ctx, c.tx, c.row, outputs, 0); err != nil {
		return fmt.Errorf("record the outputs: %w", err)
	}
	return nil
}

// Release rolls back, unless the claim has ended.
func (c *Claim) Release() error {
	if c.ended {
		return nil
	}
	return claims.Guard(c.conn, c.abandon, c.rollback)
}

// rollback returns an error only where the handler committed.
func (c *Claim) rollback() error {
	defer c.end()
	switch err := c.rollbackInTime(); {
	case err == errStuck:
		return nil
	case c.recorded != nil: // no handler ran
		return nil
	case err == nil, errors.Is(err, sql.ErrTxDone):
		return Committed(c.conn, c.row)
	case strings.Contains(err.Error(), "unexpected transaction status"): // lib/pq closes a connection that the handler left so
		c.end()
		return Committed(c.db, c.row)
	}
	c.lost = true // without its connection the transaction is over as well
	return nil
}

// stuck is how long a rollback may wait. database/sql waits for rows that a handler left open with bytes that they lent
// it (sql.RawBytes), and for what a driver that panicked in a query had begun, for ever.
const stuck = 5 * time.Second

var errStuck = errors.New("postgres: the rollback waits for what the handler left open")

func (c *Claim) rollbackInTime() error {
	done := make(chan error, 1)
	go func() { done <- c.tx.Rollback() }()
	patience := time.NewTimer(stuck)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
		claims.Cut(c.conn) // so PostgreSQL rolls back
		c.stuck = true
		return errStuck
	}
}

// Committed returns an error if this very row is in the database, although its transaction has ended without a commit.
func Committed(q keytable.Querier, row keytable.Row) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if found, err := keytable.InPostgres.Entered(ctx, q, row); err != nil || !found {
		return nil
	}
	return fmt.Errorf("postgres: roll back: the key is committed: %w", sql.ErrTxDone)
}

// Lost says in the words of database/sql what pgx says of a connection that is closed.
func Lost(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "conn closed") {
		return fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	return err
}

// end gives the connection back to the pool, which closes a broken one.
func (c *Claim) end() {
	c.ended = true
	if c.stuck {
		go func() { _ = c.conn.Close() }()
		return
	}
	_ = c.conn.Close()
}

// abandon follows a panic of the driver. After one in BEGIN or COMMIT database/sql keeps the slot of its pool for good.
func (c *Claim) abandon() {
	c.ended = true
	if c.tx != nil {
		go func() {
			if !errors.Is(c.tx.Rollback(), sql.ErrTxDone) {
				_ = c.conn.Close()
			}
		}()
	}
}
