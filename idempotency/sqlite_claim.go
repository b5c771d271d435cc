package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/keytable"
)

// sqliteClaim holds the gate and a connection of its own. The connection is pinned, so that one whose transaction did
// not end cleanly can be thrown away instead of going back to the pool with it.
type sqliteClaim struct {
	store    *sqliteStore
	row      keytable.Row
	conn     *sql.Conn
	tx       *sql.Tx
	recorded *keytable.Record // the key was there already
	ended    bool
	lost     bool // SQLite had rolled back before we asked
}

// errRolledBack says that SQLite rolled the transaction back by itself after a statement failed, as it does when the disk
// is full, a statement is interrupted, or one says OR ROLLBACK (sqlite.org/lang_transaction.html). database/sql does not
// notice, and what is written after that commits on its own.
var errRolledBack = errors.New("the transaction was rolled back before the handler returned, by SQLite when a statement failed or by the handler")

func isNoTransaction(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}

func (c *sqliteClaim) Tx() *sql.Tx       { return c.tx }
func (c *sqliteClaim) Recorded() *Record { return (*Record)(c.recorded) }

// begin leaves nothing open when it fails. The write comes first: a transaction that began by reading could not become
// a writing one once another process had written.
func (c *sqliteClaim) begin(ctx context.Context) error {
	conn, err := c.store.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlite: take a connection: %w", err)
	}
	// A statement under a context that can end costs a goroutine in some drivers, and does not end its wait any sooner.
	ctx = context.WithoutCancel(ctx)
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		discard(conn)
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	c.conn, c.tx = conn, tx
	if c.recorded, err = keytable.InSQLite.Enter(ctx, tx, c.row); err != nil {
		if tx.Rollback() != nil {
			discard(conn)
		}
		_ = conn.Close()
		return fmt.Errorf("sqlite: enter the key: %w", err)
	}
	return nil
}

func (c *sqliteClaim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("sqlite: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	defer c.end()
	if c.recorded != nil {
		return errors.Join(errors.New("sqlite: commit of a key that was applied before"), c.rollback())
	}
	if err := c.record(outputs); err != nil {
		err = errors.Join(fmt.Errorf("sqlite: record the outputs: %w", err), c.rollback())
		if c.lost && errors.Is(err, keytable.ErrGone) { // else it was this statement that made SQLite roll back
			err = fmt.Errorf("%w: %w", errRolledBack, err)
		}
		return err
	}
	if err := c.tx.Commit(); err != nil {
		defer discard(c.conn)
		if !isNoTransaction(err) {
			return fmt.Errorf("sqlite: commit: %w", err)
		}
		if found, _ := c.find(); found {
			return fmt.Errorf("sqlite: commit: the key is committed: %w", sql.ErrTxDone)
		}
		return fmt.Errorf("%w: %w", errRolledBack, err)
	}
	return nil
}

// find looks for the row outside of the transaction, once that has ended: it is there if the handler committed.
func (c *sqliteClaim) find() (bool, error) {
	return keytable.InSQLite.Entered(context.Background(), c.conn, c.row)
}

func (c *sqliteClaim) record(outputs []byte) error {
	if len(outputs) == 0 {
		return nil // NULL stands there already
	}
	return keytable.InSQLite.RecordOutputs(context.Background(), c.tx, c.row, outputs)
}

func (c *sqliteClaim) Release() error {
	if c.ended {
		return nil
	}
	defer c.end()
	return c.rollback()
}

// rollback returns an error only where something may have stayed.
func (c *sqliteClaim) rollback() error {
	err := c.tx.Rollback()
	if err == nil {
		return nil
	}
	defer discard(c.conn)
	c.lost = isNoTransaction(err)
	if c.recorded != nil {
		return nil // nothing was written, and no handler ran
	}
	// Either the handler ended the transaction, or SQLite did so after an error of its own.
	found, unknown := c.find()
	switch {
	case unknown != nil:
		return fmt.Errorf("sqlite: roll back: %w", err)
	case found:
		return fmt.Errorf("sqlite: roll back: the key is committed: %w", sql.ErrTxDone)
	}
	return nil
}

func (c *sqliteClaim) end() {
	c.ended = true
	_ = c.conn.Close() // gives it back to the pool, unless it was discarded
	c.store.gate.Unlock()
}
