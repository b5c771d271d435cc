package letters

import (
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// table is the table of dead letters. A column more is a file more, and a version more.
var table = schema.Table{
	Component: "letters", Name: "spillway_dead_letters", Key: []string{"seq"},
	Versions: []schema.Version{
		{File: "0004_letters.sql", Columns: []string{
			"seq", "identity", "dead_letter_topic", "id", "metadata", "payload",
			"origin_topic", "handler", "class", "reason", "type", "stack_hash", "description", "first_failed_at", "last_failed_at",
			"status", "seen", "stored_at", "token", "leased_until", "marked_at", "marked_by", "marked_why", "redrive_id",
		}},
		{File: "0005_causes.sql", Columns: []string{"service", "cause", "size", "arrived_redrive_id"}},
	},
}

// events is the table of what became of letters.
var events = schema.Table{
	Component: "letter_events", Name: "spillway_letter_events", Key: []string{"event"},
	Versions: []schema.Version{{File: "0010_letter_events.sql", Columns: []string{
		"event", "service", "letter", "identity", "message", "kind", "at", "actor", "reason", "redrive_id", "detail",
	}}},
}

// statements are what the databases say each in its own way.
type statements struct {
	// insert stores a letter, or counts that it arrived again. Its arguments are those of record.args. If there is returning, it
	// returns the letter's Seq and how often it arrived.
	insert    string
	returning bool
	// toBack puts the letter of a seq, which this transaction has to itself, behind all others.
	toBack string
	// contains is the condition that a description contains a text, compared by their bytes.
	contains string
	// byKey comes behind the name of the table if a statement must find letters by their key, and lock no others.
	byKey string
	// several comes first in a transaction that writes more than one letter. Empty if there is no need.
	several string
}

var statementsOf = map[database.Kind]statements{
	database.SQLite: {
		insert: insert + onConflict, returning: true,
		toBack:   `UPDATE spillway_dead_letters SET seq = ` + sqliteBehind + ` WHERE seq = ?`,
		contains: `instr(CAST(description AS BLOB), CAST(? AS BLOB)) > 0`,
	},
	database.Postgres: {
		insert: insert + onConflict, returning: true,
		toBack:   `UPDATE spillway_dead_letters SET seq = DEFAULT WHERE seq = ?`,
		contains: `position(?::bytea IN description) > 0`,
		// Two transactions that write the same letters in different orders would wait for each other. So each waits for the
		// other to end first: a deadlock costs a second, and a crowd of them never ends. The first number is "spil" in ASCII.
		several: `SELECT pg_advisory_xact_lock(1936746860, 'spillway_dead_letters'::regclass::oid::int)`,
	},
	database.MySQL: { // a deadlock is noticed at once, and its transaction runs again: several need no lock in front
		insert:   insert + onDuplicate,
		toBack:   mysqlToBack,
		contains: `LOCATE(?, description) > 0`,
		byKey:    ` FORCE INDEX (PRIMARY)`, // of a small table the server would rather read, and so lock, all rows
	},
}

const sqliteBehind = `(SELECT MAX(seq) + 1 FROM spillway_dead_letters)`

// mysqlToBack lets the letter conflict with itself, for a number that was given to no other letter: one that UPDATE makes up
// would be given out again by MariaDB, and the letter that got it would overwrite this one.
const mysqlToBack = `
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, origin_topic, handler, class, reason, type,
	stack_hash, description, first_failed_at, last_failed_at, stored_at)
SELECT identity, '', '', '', '', '', '', '', '', '', '', 0, 0, 0 FROM spillway_dead_letters WHERE seq = ?
ON DUPLICATE KEY UPDATE seq = VALUES(seq)`
