package delay

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
)

var sqliteDialect = dialect{
	kind:  database.SQLite,
	query: func(statement string) string { return statement },
	// SQLite counts milliseconds, and writes them as days.
	now:  `(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
	tick: time.Millisecond,
	// A transaction that has read is refused when it wants to write and another process has written meanwhile.
	lock:        `UPDATE spillway_delayed SET token = token WHERE seq = 0`,
	behind:      byRow,
	after:       ofRow,
	among:       listed,
	write:       inARow,
	transaction: writeSQLite,
	read:        sqlite.WhileBusy,
	tooLarge:    func(err error) bool { return strings.Contains(err.Error(), "too big") }, // SQLite's own words
}

// inARow runs a statement alone among the writers of this process.
func inARow(ctx context.Context, db *sql.DB, statement func() error) error {
	gate := sqlite.GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return sqlite.WhileBusy(ctx, statement)
}

func writeSQLite(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return inARow(ctx, db, func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		if err := work(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}
