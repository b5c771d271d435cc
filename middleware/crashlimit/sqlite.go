package crashlimit

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
)

var sqliteDialect = dialect{
	tables: sqliteTables,
	ensure: sqlite.Ensure,
	query:  func(statement string) string { return statement },
	text:   asText,
	now:    `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
	enter:  enterMark,
	sweep:  sweepMarks,
	write:  inARow,
	read:   sqlite.WhileBusy,
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

// sqliteTables hold texts that keys.Column made, so that they are texts.
var sqliteTables = []schema.Table{
	{Name: processTable, Columns: processColumns, Key: processKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_processes (
	service    TEXT    NOT NULL,
	id         TEXT    NOT NULL PRIMARY KEY,
	node       TEXT    NOT NULL,
	beat_ms    INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	beats      INTEGER NOT NULL,
	lost_at    INTEGER
)`}},
	{Name: deliveryTable, Columns: deliveryColumns, Key: deliveryKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service    TEXT    NOT NULL,
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	redrives   INTEGER NOT NULL,
	delivery   INTEGER NOT NULL,
	process    TEXT    NOT NULL,
	marked_at  INTEGER NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
)`}},
}
