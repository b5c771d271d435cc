package letters

import (
	"context"
	"database/sql"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/sqlite"
)

var sqliteDialect = dialect{
	query:    func(statement string) string { return statement },
	text:     asText, // whatever the bytes are: SQLite does not look at them
	insert:   insertLetter(sqliteBehind),
	toBack:   `UPDATE spillway_dead_letters SET seq = ` + sqliteBehind + ` WHERE seq = ?`,
	now:      `(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
	contains: `instr(CAST(description AS BLOB), CAST(? AS BLOB)) > 0`,
	tooLarge: func(err error, _, _ int) bool { return strings.Contains(err.Error(), "string or blob too big") }, // SQLITE_TOOBIG
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
