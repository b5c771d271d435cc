package keytable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
)

// old is true of keys that were applied long ago. A lease that is not over stays, whenever it began: its owner is at
// work.
const old = `applied_at < ? AND (expires_at IS NULL OR expires_at <= now_ms())` + oldest + ` LIMIT ?`

const oldest = ` ORDER BY applied_at`

// sparing keeps the keys of messages that are parked, where there is a table of them: their messages come again. A
// message that is parked meanwhile has a key that is younger than any retention, or none.
func sparing(statement string) string {
	return strings.Replace(statement, oldest, ` AND NOT EXISTS (SELECT 1 FROM spillway_parked p
WHERE p.consumer = spillway_keys.consumer AND p.key_id = spillway_keys.id)`+oldest, 1)
}

var (
	// The array is made once, before the rows are deleted by their places: a join might be planned to ask for old keys
	// again and again.
	purgePostgres = statement(database.Postgres, `DELETE FROM spillway_keys WHERE ctid = ANY (ARRAY (
SELECT ctid FROM spillway_keys WHERE `+old+` FOR UPDATE SKIP LOCKED))`)

	// Without the index MySQL might lock every row that it looks at.
	chooseMySQL = statement(database.MySQL,
		`SELECT consumer, id FROM spillway_keys FORCE INDEX (spillway_keys_applied_at) WHERE `+
			old+` FOR UPDATE SKIP LOCKED`)
	purgeSQLite = statement(database.SQLite,
		`DELETE FROM spillway_keys WHERE rowid IN (SELECT rowid FROM spillway_keys WHERE `+
			old+`)`)
)

const deleteMySQL = `DELETE FROM spillway_keys WHERE consumer = ? AND id IN (%s)`

// Purge deletes at most limit keys that were applied before a time in Unix milliseconds, the oldest first, in one short
// transaction. On a server it passes over keys that others are about to change. The time is by the caller's clock, as
// applied_at is by the clock of the process that claimed the key.
func Purge(ctx context.Context, db *database.Database, before int64, limit int) (n int, err error) {
	statement := map[database.Kind]string{database.Postgres: purgePostgres, database.MySQL: chooseMySQL,
		database.SQLite: purgeSQLite}[db.Kind()]
	parks, err := db.Has(ctx, Parked)
	if parks {
		statement = sparing(statement)
	}
	switch {
	case err != nil:
	case db.Kind() == database.SQLite:
		n, err = purgeBetweenClaims(ctx, db.DB(), statement, before, limit)
	default:
		err = db.Write(ctx, func(tx *sql.Tx) (err error) {
			if db.Kind() == database.MySQL {
				n, err = purgeChosen(ctx, tx, statement, before, limit)
				return err
			}
			n, err = deleted(tx.ExecContext(ctx, statement, before, limit))
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%s: purge keys: %w", db.Kind(), err)
	}
	return n, nil
}

// purgeBetweenClaims waits for other processes without the gate of SQLite, so that claims of this process wait for the
// batch alone.
func purgeBetweenClaims(ctx context.Context, db *sql.DB, statement string, before int64,
	limit int) (n int, err error) {
	gate := sqlite.GateOf(db)
	err = sqlite.WhileBusy(ctx, func() (err error) {
		if err := gate.Lock(ctx); err != nil {
			return err
		}
		defer gate.Unlock()
		n, err = deleted(db.ExecContext(ctx, statement, before, limit)) // a transaction by itself
		return err
	})
	return n, err
}

func deleted(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// maxIn is how many ids a statement names: a server takes 65,535 arguments.
const maxIn = 1000

// purgeChosen locks the rows first, by the index, and deletes them by their keys.
func purgeChosen(ctx context.Context, tx *sql.Tx, statement string, before int64, limit int) (n int, err error) {
	of := make(map[string][]any) // ids by consumer
	err = database.Each(ctx, tx, func(rows *sql.Rows) error {
		var consumer string
		var id []byte
		err := rows.Scan(&consumer, &id)
		of[consumer] = append(of[consumer], id)
		return err
	}, statement, before, limit)
	for consumer, ids := range of {
		for some := range slices.Chunk(ids, maxIn) {
			if err != nil {
				return n, err
			}
			marks := strings.TrimSuffix(strings.Repeat("?, ", len(some)), ", ")
			var more int
			more, err = deleted(tx.ExecContext(ctx, fmt.Sprintf(deleteMySQL, marks), append([]any{[]byte(consumer)}, some...)...))
			n += more
		}
	}
	return n, err
}
