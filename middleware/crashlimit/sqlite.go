package crashlimit

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
)

var sqliteDialect = dialect{
	kind:  database.SQLite,
	query: func(statement string) string { return statement },
	text:  asText,
	now:   `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
	enter: enterMark,
	sweep: sweepMarks,
	write: inARow,
	read:  sqlite.WhileBusy,
	// A statement waits in a row with the claims of handlers.
	timeout: 5 * statementTimeout,
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
