package pgxstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// The savepoint lives as long as the transaction that entered the key, however that one ends.
const (
	begin    = `BEGIN ISOLATION LEVEL READ COMMITTED`
	mark     = `SAVEPOINT spillway_key`
	proof    = `RELEASE SAVEPOINT spillway_key`
	undo     = `ROLLBACK TO SAVEPOINT spillway_key`
	noMark   = "3B001" // there is no such savepoint
	commit   = `COMMIT`
	rollback = `ROLLBACK`
)

// claim is a transaction that begins and ends with one round trip each.
type claim struct {
	row    keytable.Row
	conn   *sql.Conn
	handle tx
	asked  *sql.Tx // by a handler that needs one
	lost   bool
}

// newClaim enters the key. A key that is there, and a connection of another driver, are left to plain.
func newClaim(ctx context.Context, db *sql.DB, row keytable.Row, plain claims.Begin) (claims.Claim, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: take a connection: %w", err)
	}
	own, ok := claims.Driver(conn).(*stdlib.Conn)
	if !ok {
		_ = conn.Close()
		return plain(ctx, db, row)
	}
	c := &claim{row: row, conn: conn, handle: tx{on: &state{conn: own.Conn()}}}
	entered, err := c.enter(ctx)
	if err == nil && !entered {
		err = c.send(rollback)
	}
	if err != nil {
		c.close(true)
		if ctx.Err() != nil { // how it was interrupted must not decide what the error is
			return nil, fmt.Errorf("postgres: wait for the key: %w", ctx.Err())
		}
		return nil, fmt.Errorf("postgres: begin, and enter the key: %w", err)
	}
	if entered {
		return c, nil
	}
	c.close(false)
	return plain(ctx, db, row)
}

func (c *claim) enter(ctx context.Context) (entered bool, err error) {
	var all pgx.Batch
	all.Queue(begin)
	all.Queue(mark)
	text, args := keytable.InsertPostgres(c.row)
	all.Queue(text, args...).Exec(func(tag pgconn.CommandTag) error {
		entered = tag.RowsAffected() > 0
		return nil
	})
	return entered, c.sendBatch(ctx, &all)
}

// send sends statements without arguments as one text. The first that fails is the last.
func (c *claim) send(statements string) error {
	return c.use(func(conn *pgx.Conn) error {
		_, err := conn.Exec(context.Background(), statements)
		return err
	})
}

func (c *claim) sendBatch(ctx context.Context, all *pgx.Batch) error {
	return c.use(func(conn *pgx.Conn) error { return conn.SendBatch(ctx, all).Close() })
}

// use waits for a statement of the handler's that is running.
func (c *claim) use(work func(*pgx.Conn) error) (err error) {
	failed := c.conn.Raw(func(any) error {
		err = work(c.handle.on.conn)
		return nil
	})
	if pgconn.SafeToRetry(err) { // it was not sent: what pgx's own driver says then
		err = driver.ErrBadConn
	}
	return claims.Lost(cmp.Or(err, failed))
}

// Tx returns a *sql.Tx of the transaction, for a handler that needs one. It costs two round trips.
func (c *claim) Tx() *sql.Tx {
	_ = c.handle.on.use(func() {
		if c.asked == nil { // PostgreSQL says that a transaction is there, and goes on with it
			c.asked, _ = c.conn.BeginTx(context.Background(), nil)
		}
	})
	return c.asked
}

// Pgx returns the transaction.
func (c *claim) Pgx() pgx.Tx { return &c.handle }

// Recorded returns nil: a key that is there is left to claims of database/sql.
func (c *claim) Recorded() *keytable.Record { return nil }

// LostConnection reports whether the connection was lost when the claim was rolled back.
func (c *claim) LostConnection() bool { return c.lost }

// Commit records outputs and commits, unless the transaction is another one by now.
func (c *claim) Commit(outputs []byte) error {
	if !c.end() {
		return fmt.Errorf("postgres: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	returned := false
	defer func() {
		if !returned { // the driver panicked, and the key must not stay locked
			claims.Cut(c.conn)
		}
	}()
	err := c.commit(outputs)
	returned = true
	if err != nil {
		_ = c.rollback()
	}
	return refused(err)
}

func (c *claim) commit(outputs []byte) error {
	if c.handle.on.byHandler {
		return fmt.Errorf("the handler has called Commit or Rollback: %w", sql.ErrTxDone)
	}
	proven := len(outputs) > 0
	if proven {
		if err := c.record(context.Background(), outputs); err != nil {
			return fmt.Errorf("record the outputs: %w", err)
		}
	}
	var err error
	switch {
	case c.asked != nil && !proven:
		if err = c.send(proof); err == nil {
			err = c.asked.Commit()
		}
	case c.asked != nil:
		err = c.asked.Commit()
	case proven:
		err = c.send(commit)
	default:
		err = c.send(proof + "; " + commit)
	}
	if err != nil {
		return claims.Lost(err)
	}
	c.close(false)
	return nil
}

// record records outputs, under the settings with which the key was entered. They hold when the next statement is read.
func (c *claim) record(ctx context.Context, outputs []byte) error {
	if err := c.send(proof + "; " + keytable.RestorePostgres); err != nil {
		return err
	}
	var all pgx.Batch
	all.Queue(keytable.RecordPostgres, outputs, c.row.Consumer, c.row.ID).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return keytable.ErrGone
		}
		return nil
	})
	return c.sendBatch(ctx, &all)
}

// refused is the error of a commit that failed with err, or nil.
func refused(err error) error {
	switch state := postgres.State(err); {
	case err == nil:
		return nil
	case state == postgres.FailedTransaction:
		return fmt.Errorf("postgres: commit: %w: %w", claims.ErrAborted, err)
	case state == postgres.NoTransaction, state == noMark:
		return fmt.Errorf("postgres: commit: the key is not this transaction's: the handler ended the one it was given: %w",
			sql.ErrTxDone)
	case state != "", errors.Is(err, keytable.ErrGone), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("postgres: commit: %w", err)
	}
	return fmt.Errorf("postgres: commit, perhaps in vain (if it was not, the key will be found; where rows are open, "+
		"close them before the handler returns): %w", err)
}

// Release rolls back, unless the claim has ended.
func (c *claim) Release() error {
	if !c.end() {
		return nil
	}
	return c.rollback()
}

// rollback returns an error only where the handler committed.
func (c *claim) rollback() (committed error) {
	var err error
	if c.asked == nil {
		if err = c.send(undo + "; " + rollback); err == nil { // as a rule
			c.close(false)
			return nil
		}
		if postgres.State(err) != "" { // the transaction is not the one that entered the key
			err = c.send(rollback)
		}
	} else if err = c.asked.Rollback(); errors.Is(err, sql.ErrTxDone) {
		err = nil
	}
	if err == nil {
		committed = claims.CommittedPostgres(c.conn, c.row)
	}
	c.lost = err != nil // without its connection the transaction is over as well
	c.close(c.lost)
	return committed
}

// end reports whether the claim had not ended. From now on the handler's transaction takes no statement.
func (c *claim) end() bool { return c.handle.on.use(func() { c.handle.on.ended = true }) == nil }

// close gives the connection back, or closes it.
func (c *claim) close(broken bool) {
	c.end()
	if broken {
		_ = c.handle.on.conn.Close(context.Background())
	}
	if c.asked != nil {
		_ = c.asked.Rollback()
	}
	_ = c.conn.Close()
}
