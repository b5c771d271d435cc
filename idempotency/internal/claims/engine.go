package claims

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// engine is what differs between the databases.
type engine struct {
	name    string
	options *sql.TxOptions
	keys    *keytable.Dialect
	// waits says that a statement waits on the server for the transaction that holds the key, until its context ends.
	waits bool
	// enter enters the key, and returns what was recorded with it before.
	enter func(ctx context.Context, tx *sql.Tx, row keytable.Row) (*keytable.Record, error)
	// enterInTurn begins a claim, and again while others are in its way.
	enterInTurn func(context.Context, *Transaction) error
	// prove returns errEnded if the transaction is not the one that entered the key. Outputs will follow.
	prove func(ctx context.Context, tx *sql.Tx, row keytable.Row, outputs bool) error
	// answered reports whether an error is the database's answer.
	answered func(error) bool
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

var engines = map[database.Kind]*engine{
	database.Postgres: {
		name: "postgres", options: readCommitted, keys: &keytable.InPostgres, waits: true,
		enter: func(ctx context.Context, tx *sql.Tx, row keytable.Row) (*keytable.Record, error) {
			return keytable.EnterPostgres(ctx, tx, row)
		},
		enterInTurn: func(ctx context.Context, t *Transaction) error { return t.begin(ctx) },
		prove:       provePostgres,
		answered:    func(err error) bool { return postgres.State(err) != "" },
	},
	database.MySQL: {
		name: "mysql", options: readCommitted, keys: &keytable.InMySQL, waits: true,
		enter: func(ctx context.Context, tx *sql.Tx, row keytable.Row) (*keytable.Record, error) {
			return marked(ctx, tx, row, keytable.EnterMySQL)
		},
		enterInTurn: whileUndone,
		prove:       proveMark(func(err error) bool { return mysql.Number(err) == mysql.NoSavepoint }),
		answered:    func(err error) bool { return mysql.Number(err) != 0 },
	},
	database.SQLite: {
		name: "sqlite", keys: &keytable.InSQLite,
		enter: func(ctx context.Context, tx *sql.Tx, row keytable.Row) (*keytable.Record, error) {
			// A statement under a context that can end costs a goroutine in some drivers, and does not end its wait any sooner.
			return marked(context.WithoutCancel(ctx), tx, row, keytable.InSQLite.Enter)
		},
		enterInTurn: behindGate,
		prove: proveMark(func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "no such savepoint")
		}),
		answered: func(error) bool { return true },
	},
}

// errEnded says that the handler, or the database, has ended the transaction.
var errEnded = fmt.Errorf("the key is not this transaction's: the handler ended the one it was given, by a COMMIT, a "+
	"ROLLBACK, or a statement that commits before it runs, such as CREATE TABLE on MySQL: %w", sql.ErrTxDone)

func provePostgres(ctx context.Context, tx *sql.Tx, row keytable.Row, outputs bool) error {
	ours, err := keytable.ProvePostgres(ctx, tx, row, outputs)
	switch {
	case postgres.State(err) == postgres.FailedTransaction:
		return fmt.Errorf("%w: %w", ErrAborted, err)
	case err == nil && !ours:
		return errEnded
	}
	return err
}

// marked enters a key, and sets a savepoint behind it, which lives as long as the transaction, however that one ends.
func marked(ctx context.Context, tx *sql.Tx, row keytable.Row,
	enter func(context.Context, keytable.Querier, keytable.Row) (*keytable.Record, error)) (*keytable.Record, error) {
	record, err := enter(ctx, tx, row)
	if err == nil && record == nil {
		_, err = tx.ExecContext(ctx, `SAVEPOINT spillway_key`)
	}
	return record, err
}

func proveMark(missing func(error) bool) func(context.Context, *sql.Tx, keytable.Row, bool) error {
	return func(ctx context.Context, tx *sql.Tx, _ keytable.Row, _ bool) error {
		_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT spillway_key`)
		if missing(err) {
			return errEnded
		}
		return err
	}
}

// maxPause is how long a claim pauses at most before it asks for its key again.
const maxPause = 100 * time.Millisecond

// whileUndone begins a new transaction each time MySQL ends the wait for the key: after innodb_lock_wait_timeout, and
// with a deadlock when the transaction ahead rolls back and several waited for it. Each of those holds a lock on the
// key's place then, so that none of them could insert.
func whileUndone(ctx context.Context, t *Transaction) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		err := t.begin(ctx)
		if !mysql.Undone(err) || !timing.Wait(ctx, rand.N(pause)) {
			return err
		}
	}
}

// behindGate waits for its turn among the writers of the process and for the write lock of the file. The transaction
// writes first: one that began by reading could not become a writing one once another process had written.
func behindGate(ctx context.Context, t *Transaction) error {
	gate := sqlite.GateOf(t.db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	entered := false
	defer func() { // also when the driver panics: a gate left locked would stop every writer
		if !entered {
			gate.Unlock()
		}
	}()
	if err := sqlite.WhileBusy(ctx, func() error { return t.begin(ctx) }); err != nil {
		return err
	}
	entered, t.leave = true, gate.Unlock
	return nil
}

// ErrAborted says that the handler went on after a statement had failed. Nothing of the transaction is in the database.
var ErrAborted = errors.New("a statement failed, so PostgreSQL commits nothing of the transaction, and the handler went on: " +
	"return the error of a failed statement, or set a SAVEPOINT before it and roll back to that")
