package claims

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Transaction is a claim as a transaction of database/sql on a connection of its own. Its first statement enters the
// key. Before the commit it asks whether the transaction is still the one that entered the key, because a handler can
// end it in SQL, and MySQL and SQLite end it by themselves after some failed statements.
type Transaction struct {
	*engine
	db       *sql.DB
	row      keytable.Row
	largest  int // how many bytes of outputs a statement takes, or 0 if that is not known
	conn     *sql.Conn
	tx       *sql.Tx
	recorded *keytable.Record // the key was there already
	leave    func()           // opens SQLite's gate
	ended    bool
	stuck    bool // database/sql waits for the handler
	lost     bool // the connection, when the claim was rolled back
}

// In returns what enters keys in a database by transactions of database/sql.
func In(on *database.Database) Begin {
	e, largest := engines[on.Kind()], on.Largest()
	return func(ctx context.Context, db *sql.DB, row keytable.Row) (Claim, error) {
		t := &Transaction{engine: e, db: db, row: row, largest: largest}
		if err := e.enterInTurn(ctx, t); err != nil {
			return nil, err
		}
		return t, nil
	}
}

// LostConnection reports whether the connection was lost when the claim was rolled back.
func (t *Transaction) LostConnection() bool { return t.lost }

// Recorded returns what was recorded when the key was applied before, or nil.
func (t *Transaction) Recorded() *keytable.Record { return t.recorded }

// Tx returns the transaction for the handler.
func (t *Transaction) Tx() *sql.Tx { return t.tx }

// Conn returns the connection of the transaction.
func (t *Transaction) Conn() *sql.Conn { return t.conn }

// begin enters the key, and waits while another transaction holds the same one. It leaves nothing open when it fails.
func (t *Transaction) begin(ctx context.Context) (err error) {
	if t.conn, err = t.db.Conn(ctx); err != nil {
		return fmt.Errorf("%s: take a connection: %w", t.name, err)
	}
	returned := false
	defer func() { t.cutUnless(returned) }()
	defer CutOff(ctx, Driver(t.conn))()
	// A handler that acks its message ends ctx, and not the transaction.
	if t.tx, err = t.conn.BeginTx(context.WithoutCancel(ctx), t.options); err != nil {
		Discard(t.conn)
	} else if t.recorded, err = t.enter(ctx, t.tx, t.row); err != nil && t.tx.Rollback() != nil {
		Discard(t.conn)
	}
	returned = true
	if err == nil {
		return nil
	}
	_ = t.conn.Close()
	if t.waits && ctx.Err() != nil { // how a driver says that it was interrupted differs, and must not decide what the error is
		return fmt.Errorf("%s: wait for the key: %w", t.name, ctx.Err())
	}
	return fmt.Errorf("%s: begin, and enter the key: %w", t.name, Lost(err))
}

// Commit records outputs and commits.
func (t *Transaction) Commit(outputs []byte) error {
	returned := false
	defer func() { t.cutUnless(returned) }()
	err := t.commit(outputs)
	returned = true
	return err
}

func (t *Transaction) commit(outputs []byte) error {
	if t.ended {
		return fmt.Errorf("%s: commit of a claim that has ended: %w", t.name, sql.ErrTxDone)
	}
	if t.recorded != nil {
		return errors.Join(fmt.Errorf("%s: commit of a key that was applied before", t.name), t.rollback())
	}
	if err := t.record(outputs); err != nil {
		committed := t.rollback()
		if errors.Is(err, errEnded) && committed == nil {
			err = ErrRolledBack
		}
		return fmt.Errorf("%s: commit: %w", t.name, Lost(err))
	}
	err := t.tx.Commit()
	if err != nil {
		Discard(t.conn)
	}
	t.end()
	switch {
	case err == nil:
		return nil
	case t.answered(err):
		return fmt.Errorf("%s: commit: %w", t.name, err)
	}
	return fmt.Errorf("%s: commit, perhaps in vain (if it was not, the key will be found): %w", t.name, Lost(err))
}

// record records the outputs, if any, and makes sure that the transaction is still the one that entered the key.
func (t *Transaction) record(outputs []byte) error {
	ctx := context.Background()
	switch err := t.prove(ctx, t.tx, t.row, len(outputs) > 0); {
	case errors.Is(err, errEnded), errors.Is(err, ErrAborted):
		return err
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("the handler has called Commit or Rollback: %w", err)
	case err != nil && !t.answered(err):
		Cut(t.conn) // an answer may be on its way
		return fmt.Errorf("look at the transaction (where rows are open, close them before the handler returns): %w", err)
	case err != nil:
		return fmt.Errorf("look at the transaction: %w", err)
	case len(outputs) == 0: // then NULL stands there already
		return nil
	}
	if err := t.keys.RecordOutputs(ctx, t.tx, t.row, outputs, t.largest); err != nil {
		return fmt.Errorf("record the outputs: %w", err)
	}
	return nil
}

// Release rolls back, unless the claim has ended.
func (t *Transaction) Release() error {
	if t.ended {
		return nil
	}
	return t.rollback()
}

// rollback returns an error only where the handler committed.
func (t *Transaction) rollback() error {
	defer t.end()
	switch err := t.rollbackInTime(); {
	case err == errStuck, t.recorded != nil: // with a record no handler ran
		return nil
	case err == nil, errors.Is(err, sql.ErrTxDone), isOver(err):
		return t.committed()
	}
	t.lost = t.waits // without its connection the transaction is over as well
	return nil
}

// isOver knows what SQLite says of a transaction that it rolled back itself, or that the handler ended. It also knows
// what lib/pq says before it closes the connection of one that the handler ended.
func isOver(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active") ||
		strings.Contains(err.Error(), "unexpected transaction status")
}

// committed returns an error if this very row is in the database, although its transaction has ended without a commit.
// The connection may be closed by then, or MySQL's have tables locked that the key is not in: then it is another one
// that looks.
func (t *Transaction) committed() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := t.keys.Entered(ctx, t.conn, t.row)
	if found || err != nil {
		Discard(t.conn)
	}
	if err != nil {
		found, err = t.keys.Entered(ctx, t.db, t.row)
	}
	return committed(t.name, found && err == nil)
}

func committed(store string, found bool) error {
	if !found {
		return nil
	}
	return fmt.Errorf("%s: roll back: the key is committed: %w", store, sql.ErrTxDone)
}

// CommittedPostgres is committed for package pgxstore.
func CommittedPostgres(q keytable.Querier, row keytable.Row) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := keytable.InPostgres.Entered(ctx, q, row)
	return committed("postgres", found && err == nil)
}

// stuck is how long a rollback may wait. database/sql waits for rows that a handler left open with bytes that they lent
// it (sql.RawBytes), for ever.
const stuck = 5 * time.Second

var errStuck = errors.New("the rollback waits for what the handler left open")

func (t *Transaction) rollbackInTime() error {
	done := make(chan error, 1)
	go func() { done <- t.tx.Rollback() }()
	patience := time.NewTimer(stuck)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
		Cut(t.conn) // so the database rolls back
		t.stuck = true
		return errStuck
	}
}

// Lost says in the words of database/sql what pgx says of a connection that is closed.
func Lost(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "conn closed") {
		return fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	return err
}

// end gives the connection back to the pool, which closes a broken one.
func (t *Transaction) end() {
	if !t.ended && t.leave != nil {
		t.leave()
	}
	t.ended = true
	if t.stuck {
		go func() { _ = t.conn.Close() }()
		return
	}
	_ = t.conn.Close()
}

// cutUnless ends the claim of a driver that panicked, so that the key does not stay locked. What database/sql held then
// it may hold for ever: nothing waits for it.
func (t *Transaction) cutUnless(returned bool) {
	if returned || t.ended {
		return
	}
	Cut(t.conn)
	if t.leave != nil {
		t.leave()
	}
	t.ended = true
	if t.tx == nil {
		return
	}
	go func() {
		if !errors.Is(t.tx.Rollback(), sql.ErrTxDone) {
			_ = t.conn.Close()
		}
	}()
}
