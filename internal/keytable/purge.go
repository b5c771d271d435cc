package keytable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
)

// A key may go that was applied long ago. A lease that is not over may not, whenever it began: somebody is at work.
const (
	oldPostgres = `applied_at < $1 AND (expires_at IS NULL OR expires_at <= ` + nowPostgres + `) ORDER BY applied_at LIMIT $2`
	oldMySQL    = `applied_at < ? AND (expires_at IS NULL OR expires_at <= ` + nowMySQL + `) ORDER BY applied_at LIMIT ?`
	oldSQLite   = `applied_at < ? AND (expires_at IS NULL OR expires_at <= ` + nowSQLite + `) ORDER BY applied_at LIMIT ?`
)

const (
	// The array is made once, before the rows are deleted by their places: a join might be planned to ask for old keys
	// again and again.
	purgePostgres = `DELETE FROM spillway_keys WHERE ctid = ANY (ARRAY (
SELECT ctid FROM spillway_keys WHERE ` + oldPostgres + ` FOR UPDATE SKIP LOCKED))`

	// Without the index MySQL might lock every row that it looks at.
	chooseMySQL = `SELECT consumer, id FROM spillway_keys FORCE INDEX (spillway_keys_applied_at) WHERE ` + oldMySQL + ` FOR UPDATE SKIP LOCKED`
	deleteMySQL = `DELETE FROM spillway_keys WHERE consumer = ? AND id IN (%s)`
	// purgeMySQL is for servers that do not know SKIP LOCKED.
	purgeMySQL = `DELETE FROM spillway_keys WHERE ` + oldMySQL

	purgeSQLite = `DELETE FROM spillway_keys WHERE rowid IN (SELECT rowid FROM spillway_keys WHERE ` + oldSQLite + `)`
)

// PurgePostgres deletes at most limit keys that were applied before a time in Unix milliseconds, the oldest first, in one
// short transaction. Keys that somebody is about to change are passed over. The time is by the caller's clock, as applied_at
// is by that of who claimed the key.
func PurgePostgres(ctx context.Context, db *sql.DB, before int64, limit int) (n int, err error) {
	err = postgres.Write(ctx, db, func(tx *sql.Tx) (err error) {
		n, err = deleted(tx.ExecContext(ctx, purgePostgres, before, limit))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: purge keys: %w", err)
	}
	return n, nil
}

// PurgeMySQL is PurgePostgres for MySQL and MariaDB. MariaDB before 10.6 cannot pass over keys: there it waits for them,
// and where others wait for it too, one of them is undone by the server.
func PurgeMySQL(ctx context.Context, db *sql.DB, before int64, limit int) (n int, err error) {
	err = mysql.Write(ctx, db, func(tx *sql.Tx) (err error) {
		old, err := chosen(ctx, tx, before, limit)
		if mysql.Number(err) == syntaxError {
			n, err = deleted(tx.ExecContext(ctx, purgeMySQL, before, limit))
			return err
		}
		if err != nil {
			return err
		}
		n, err = remove(ctx, tx, old)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mysql: purge keys: %w", err)
	}
	return n, nil
}

// PurgeSQLite is PurgePostgres for SQLite. It waits for other processes without the gate, so that claims of this
// one wait for the batch alone.
func PurgeSQLite(ctx context.Context, db *sql.DB, before int64, limit int) (n int, err error) {
	gate := sqlite.GateOf(db)
	err = sqlite.WhileBusy(ctx, func() (err error) {
		if err := gate.Lock(ctx); err != nil {
			return err
		}
		defer gate.Unlock()
		n, err = deleted(db.ExecContext(ctx, purgeSQLite, before, limit)) // a transaction by itself
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: purge keys: %w", err)
	}
	return n, nil
}

func deleted(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// syntaxError is what a server says to words that it does not know.
const syntaxError = 1064

// chosen locks old keys and returns their ids by consumer, as bytes.
func chosen(ctx context.Context, tx *sql.Tx, before int64, limit int) (map[string][]any, error) {
	rows, err := tx.QueryContext(ctx, chooseMySQL, before, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	old := make(map[string][]any)
	for rows.Next() {
		var consumer string
		var id []byte
		if err := rows.Scan(&consumer, &id); err != nil {
			return nil, err
		}
		old[consumer] = append(old[consumer], id)
	}
	return old, rows.Err()
}

// maxIn is how many ids a statement names: a server takes 65,535 arguments.
const maxIn = 1000

// remove deletes keys by the primary key.
func remove(ctx context.Context, tx *sql.Tx, old map[string][]any) (n int, err error) {
	for consumer, ids := range old {
		for some := range slices.Chunk(ids, maxIn) {
			marks := strings.TrimSuffix(strings.Repeat("?, ", len(some)), ", ")
			args := append([]any{[]byte(consumer)}, some...)
			more, err := deleted(tx.ExecContext(ctx, fmt.Sprintf(deleteMySQL, marks), args...))
			if n += more; err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
