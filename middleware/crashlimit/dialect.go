package crashlimit

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// dialect is all in which one database differs from another.
type dialect struct {
	kind database.Kind
	// query puts the database's own placeholders into a statement.
	query func(string) string
	// text binds a text.
	text func(string) any
	// now is the database's clock, in milliseconds since 1970.
	now string
	// enter and sweep are those statements that no two databases have in common.
	enter, sweep string
	// write runs a statement that writes, and read one that does not, again and again while others are in the way.
	write func(ctx context.Context, db *sql.DB, statement func() error) error
	read  func(ctx context.Context, statement func() error) error
	// timeout bounds a statement and the waits for its turn.
	timeout time.Duration
}

// statements are what a store says to its database.
type statements struct {
	register, beat, others, lose, forget, signOff string
	enter, marks, clear, clearOwn, leave, sweep   string
}

func (d *dialect) statements() statements {
	say := func(statement string) string { return d.query(strings.ReplaceAll(statement, "now()", d.now)) }
	return statements{
		register: say(`INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats) VALUES (?, ?, ?, ?, now(), 0)`),
		beat:     say(`UPDATE spillway_processes SET beats = beats + 1, lost_at = NULL WHERE id = ?`),
		others: say(`SELECT id, beats, beat_ms, lost_at IS NOT NULL, COALESCE(now() - lost_at, 0) FROM spillway_processes
WHERE service = ? AND id <> ?`),
		lose:    say(`UPDATE spillway_processes SET lost_at = now() WHERE id = ? AND beats = ? AND lost_at IS NULL`),
		forget:  say(`DELETE FROM spillway_processes WHERE id = ? AND lost_at IS NOT NULL`),
		signOff: say(`DELETE FROM spillway_processes WHERE id = ?`),

		enter:    say(d.enter),
		marks:    say(`SELECT delivery, process FROM spillway_deliveries` + ofMessage + ` ORDER BY delivery`),
		clear:    say(`DELETE FROM spillway_deliveries` + ofMessage + ` AND delivery <= ?`),
		clearOwn: say(`DELETE FROM spillway_deliveries` + ofMessage + ` AND process = ?`),
		leave:    say(`DELETE FROM spillway_deliveries WHERE process = ?`),
		sweep:    say(d.sweep),
	}
}

var tables = []schema.Table{
	{Component: "processes", Name: "spillway_processes", Key: []string{"id"}, Versions: []schema.Version{{
		File:    "0007_processes.sql",
		Columns: []string{"service", "id", "node", "beat_ms", "started_at", "beats", "lost_at"},
	}}},
	{Component: "deliveries", Name: "spillway_deliveries", Key: []string{"service", "consumer", "id", "redrives", "delivery"}, Versions: []schema.Version{{
		File:    "0008_deliveries.sql",
		Columns: []string{"service", "consumer", "id", "redrives", "delivery", "process", "marked_at"},
	}}},
}

const (
	// ofMessage has the arguments of sqlStore.key.
	ofMessage = ` WHERE service = ? AND consumer = ? AND id = ? AND redrives = ?`
	// newMark has them too, and a written.
	newMark = ` INTO spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at) VALUES (?, ?, ?, ?, ?, ?, now())`
)

// The statements that PostgreSQL and SQLite have in common.
const (
	enterMark  = `INSERT` + newMark + ` ON CONFLICT DO NOTHING`
	sweepMarks = `DELETE FROM spillway_deliveries WHERE (service, consumer, id, redrives, delivery) IN (
	SELECT service, consumer, id, redrives, delivery FROM spillway_deliveries WHERE marked_at < now() - ? LIMIT 500)`
)

// attempts is how often a statement may be in another's way before its error is returned.
const attempts = 5

// unless returns a dialect.write that runs a statement again when undone says that others are the reason of its error.
func unless(undone func(error) bool) func(context.Context, *sql.DB, func() error) error {
	return func(ctx context.Context, _ *sql.DB, statement func() error) error {
		for attempt := 1; ; attempt++ {
			err := statement()
			if err == nil || attempt == attempts || !undone(err) || !wait.For(ctx, time.Duration(attempt)*5*time.Millisecond) {
				return err
			}
		}
	}
}

// once is a dialect.read where readers wait for nobody.
func once(_ context.Context, statement func() error) error { return statement() }
