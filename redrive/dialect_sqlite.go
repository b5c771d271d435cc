package redrive

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/schema"
	"github.com/watermill-spillway/spillway/internal/sqlite"
)

var sqliteDialect = dialect{
	table:    sqliteLetters,
	ensure:   sqlite.Ensure,
	query:    func(statement string) string { return statement },
	text:     asText, // whatever the bytes are: SQLite does not look at them
	insert:   insertLetter(sqliteBehind),
	toBack:   `UPDATE spillway_dead_letters SET seq = ` + sqliteBehind + ` WHERE seq = ?`,
	now:      `(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
	write:    writeSQLite,
	patience: sqlite.WhileBusy,
}

const sqliteBehind = `(SELECT MAX(seq) + 1 FROM spillway_dead_letters)`

// writeSQLite runs work alone among the writers of this process.
func writeSQLite(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	gate := sqlite.GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return sqlite.WhileBusy(ctx, func() error {
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

// sqliteLetters holds a letter a row. The message as it arrived is in id, metadata and payload; the other columns repeat
// what is chosen and grouped by, or say what became of it. Times are microseconds since 1970; names are bytes, because
// nobody promises that they are text.
var sqliteLetters = schema.Table{
	Name:    "spillway_dead_letters",
	Key:     []string{"seq"},
	Columns: columns,
	Create: []string{`
CREATE TABLE IF NOT EXISTS spillway_dead_letters (
	seq               INTEGER PRIMARY KEY AUTOINCREMENT,
	identity          BLOB    NOT NULL UNIQUE,
	dead_letter_topic BLOB    NOT NULL,
	id                BLOB    NOT NULL,
	metadata          BLOB    NOT NULL,
	payload           BLOB,
	origin_topic      BLOB    NOT NULL,
	handler           BLOB    NOT NULL,
	class             TEXT    NOT NULL,
	reason            TEXT    NOT NULL,
	type              TEXT    NOT NULL,
	stack_hash        TEXT    NOT NULL,
	description       TEXT    NOT NULL,
	first_failed_at   INTEGER NOT NULL,
	last_failed_at    INTEGER NOT NULL,
	status            TEXT    NOT NULL DEFAULT 'waiting',
	seen              INTEGER NOT NULL DEFAULT 1,
	stored_at         INTEGER NOT NULL,
	token             TEXT    NOT NULL DEFAULT '',
	leased_until      INTEGER NOT NULL DEFAULT 0,
	marked_at         INTEGER NOT NULL DEFAULT 0,
	marked_by         TEXT    NOT NULL DEFAULT '',
	marked_why        TEXT    NOT NULL DEFAULT '',
	redrive_id        TEXT    NOT NULL DEFAULT ''
)`,
		`CREATE INDEX IF NOT EXISTS spillway_dead_letters_status ON spillway_dead_letters (status, seq)`,
		`CREATE INDEX IF NOT EXISTS spillway_dead_letters_token ON spillway_dead_letters (token) WHERE token <> ''`,
	},
}
