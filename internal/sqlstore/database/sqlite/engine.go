package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Engine is what SQLite does in its own way. See the interface in package database.
type Engine struct{}

// SQLite counts milliseconds, and writes them as days.
const nowMS = `CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`

var clock = strings.NewReplacer("now_ms()", nowMS, "now_us()", `(`+nowMS+` * 1000)`)

// Statement spells the clocks.
func (Engine) Statement(text string) string { return clock.Replace(text) }

// Text and Bytes bind text, whatever its bytes are: SQLite does not look at them. Bytes for a BLOB column are bound as
// bytes.
func (Engine) Text(s string) any { return s }

// Bytes is Text.
func (Engine) Bytes(s string) any { return s }

// SkipLocked is empty: one transaction writes at a time.
func (Engine) SkipLocked() string { return "" }

// Write runs work in a transaction, alone among the writers of this process.
func (e Engine) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return e.Again(ctx, db, func() error { return rerun.Transaction(ctx, db, nil, work) })
}

// Again runs one statement alone among the writers of this process, and again while another process writes.
func (Engine) Again(ctx context.Context, db *sql.DB, statement func() error) error {
	gate := GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return WhileBusy(ctx, statement)
}

// Read runs read, and again while a writer of another process is in the way.
func (Engine) Read(ctx context.Context, read func() error) error { return WhileBusy(ctx, read) }

// Planned runs read, and again while a writer of another process is in the way. Each query is planned for its values
// anyway.
func (Engine) Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error {
	return WhileBusy(ctx, func() error { return read(db) })
}

// Largest returns 0: the error of a value that is too large says so.
func (Engine) Largest(context.Context, *sql.DB) (int, error) { return 0, nil }

// TooLarge reports whether err is SQLITE_TOOBIG.
func (Engine) TooLarge(err error, _, _ int) bool {
	return strings.Contains(err.Error(), "string or blob too big")
}

// IsThere reports whether a column could not be added because it is there.
func (Engine) IsThere(err error) bool { return strings.Contains(err.Error(), "duplicate column name") }

// MayNot reports whether the file may only be read.
func (Engine) MayNot(err error) bool { return strings.Contains(err.Error(), "readonly database") }

// Taken reports whether a row with the same unique key is there.
func (Engine) Taken(err error) bool { return strings.Contains(err.Error(), "UNIQUE constraint failed") }

// PrimaryTaken returns false, as Behind does: SQLite numbers behind the rows, whatever its counter says.
func (Engine) PrimaryTaken(error, schema.Table) bool { return false }

// Behind returns false.
func (Engine) Behind(context.Context, schema.Session, schema.Table) (bool, error) { return false, nil }

// Renumber returns nothing.
func (Engine) Renumber(schema.Table) string { return "" }
