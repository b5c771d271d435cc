// Package sqliteclaim is the claim of a key in SQLite: one transaction from the key to the commit, which holds the
// write lock.
package sqliteclaim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Claim holds the gate and a connection of its own. The connection is pinned, so that one whose transaction did
// not end cleanly can be thrown away instead of going back to the pool with it.
type Claim struct {
	gate     *sqlite.Gate
	db       *sql.DB
	row      keytable.Row
	conn     *sql.Conn
	tx       *sql.Tx
	recorded *keytable.Record // the key was there already
	ended    bool
	lost     bool // SQLite had rolled back before we asked
}

func isNoTransaction(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}

// Tx returns the transaction for the handler.
func (c *Claim) Tx() *sql.Tx { return c.tx }

// Recorded returns what was recorded when the key was applied before, or nil.
func (c *Claim) Recorded() *keytable.Record { return c.recorded }

// Begin waits for its turn among the writers of the process and for the write lock of the file, and enters the key.
func Begin(ctx context.Context, db *sql.DB, row keytable.Row) (*Claim, error) {
	gate := sqlite.GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return nil, err
	}
	entered := false
	defer func() { // also when the driver panics: a gate left locked would stop every writer
		if !entered {
			gate.Unlock()
		}
	}()
	c := &Claim{gate: gate, db: db, row: row}
	if err := sqlite.WhileBusy(ctx, func() error { return c.begin(ctx) }); err != nil {
		return nil, err
	}
	entered = true
	return c, nil
}

// begin leaves nothing open when it fails. The write comes first: a transaction that began by reading could not become
// a writing one once another process had written.
func (c *Claim) begin(ctx context.Context) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlite: take a connection: %w", err)
	}
	// A statement under a context that can end costs a goroutine in some drivers, and does not end its wait any sooner.
	ctx = context.WithoutCancel(ctx)
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		claims.Discard(conn)
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	c.conn, c.tx = conn, tx
	if c.recorded, err = keytable.InSQLite.Enter(ctx, tx, c.row); err != nil {
		if tx.Rollback() != nil {
			claims.Discard(conn)
		}
		_ = conn.Close()
		return fmt.Errorf("sqlite: enter the key: %w", err)
	}
	return nil
}

// Commit records outputs and commits.
func (c *Claim) Commit(outputs []byte) error {
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
			err = fmt.Errorf("%w: %w", claims.ErrRolledBack, err)
		}
		return err
	}
	if err := c.tx.Commit(); err != nil {
		defer claims.Discard(c.conn)
		if !isNoTransaction(err) {
			return fmt.Errorf("sqlite: commit: %w", err)
		}
		if found, _ := c.find(); found {
			return fmt.Errorf("sqlite: commit: the key is committed: %w", sql.ErrTxDone)
		}
		return fmt.Errorf("%w: %w", claims.ErrRolledBack, err)
	}
	return nil
}

// find looks for the row outside of the transaction, once that has ended: it is there if the handler committed.
func (c *Claim) find() (bool, error) {
	return keytable.InSQLite.Entered(context.Background(), c.conn, c.row)
}

func (c *Claim) record(outputs []byte) error {
	if len(outputs) == 0 {
		return nil // NULL stands there already
	}
	return keytable.InSQLite.RecordOutputs(context.Background(), c.tx, c.row, outputs, 0)
}

// Release rolls back, unless the claim has ended.
func (c *Claim) Release() error {
	if c.ended {
		return nil
	}
	defer c.end()
	return c.rollback()
}

// rollback returns an error only where something may have stayed.
func (c *Claim) rollback() error {
	err := c.tx.Rollback()
	if err == nil {
		return nil
	}
	defer claims.Discard(c.conn)
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

func (c *Claim) end() {
	c.ended = true
	_ = c.conn.Close() // gives it back to the pool, unless it was discarded
	c.gate.Unlock()
}
