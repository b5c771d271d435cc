package letters

import (
	"context"
	"database/sql"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database"
)

// dialect is all in which one database differs from another. Statements are written with question marks, and in the SQL
// that all understand.
type dialect struct {
	// query puts the database's own placeholders into a statement.
	query func(string) string
	// text binds text that came with a message, or from a caller, and so may hold any bytes.
	text func(string) any
	// insert stores a letter, or notes that one arrived again.
	insert string
	// toBack puts the letter of a seq, which this transaction has to itself, behind all others.
	toBack string
	// now is the database's clock, in microseconds since 1970.
	now string
	// byKey comes behind the name of the table where a statement must find letters by their key, and lock no others.
	byKey string
	// lock comes behind a query of letters to take: it locks them and passes over those that others have locked. Empty where
	// one transaction writes at a time.
	lock string
	// contains is the condition that a description contains a text, compared by their bytes.
	contains string
	// several comes first in a transaction that writes more than one letter. Empty where there is no need.
	several string
	// limit asks for the size of the largest letter. Nil where only the database's own errors say what is too large.
	limit func(context.Context, *sql.DB) (int, error)
	// tooLarge reports whether the error of a letter was a refusal for its size.
	tooLarge func(err error, size, limit int) bool
	// write runs work in a transaction, again and again while others are in the way.
	write func(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error
	// patience runs a read, again and again while others are in the way.
	patience func(ctx context.Context, read func() error) error
}

// say returns the statement as the database understands it. Statements write its clock as now().
func (d *dialect) say(statement string) string {
	return d.query(strings.ReplaceAll(statement, "now()", d.now))
}

var dialects = map[database.Kind]*dialect{database.Postgres: &postgresDialect, database.MySQL: &mysqlDialect, database.SQLite: &sqliteDialect}

// insertLetter stores a letter, or notes that one arrived again. One that was redriven or discarded already waits again
// then, behind all others, so that a drain that is running does not meet it twice. Whoever holds a lease loses it: what
// they are about to mark may be the redrive that failed again just now, if its redrive count was lost on the way.
// Better a letter too many, which the receiver absorbs, than one too few.
func insertLetter(behind string) string {
	return newLetter + `
ON CONFLICT (identity) DO UPDATE SET
	dead_letter_topic = excluded.dead_letter_topic,
	metadata          = excluded.metadata,
	class             = excluded.class,
	reason            = excluded.reason,
	type              = excluded.type,
	stack_hash        = excluded.stack_hash,
	description       = excluded.description,
	cause             = excluded.cause,
	size              = excluded.size,
	arrived_redrive_id = excluded.arrived_redrive_id,
	first_failed_at   = excluded.first_failed_at,
	last_failed_at    = excluded.last_failed_at,
	seen              = spillway_dead_letters.seen + 1,
	token             = '',
	leased_until      = 0,
	seq               = CASE WHEN spillway_dead_letters.status IN ('redriven', 'discarded') THEN ` + behind + ` ELSE spillway_dead_letters.seq END,
	status            = CASE WHEN spillway_dead_letters.status IN ('redriven', 'discarded') THEN 'waiting' ELSE spillway_dead_letters.status END`
}

// newLetter has the arguments of record.args.
const newLetter = `
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload,
	origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at,
	service, cause, size, arrived_redrive_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
