package letters

import (
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

const file = "0004_letters.sql"

// table is the table of dead letters.
var table = schema.Table{
	Component: "letters", Name: "spillway_dead_letters", Key: []string{"seq"},
	Versions: []schema.Version{{File: file, Columns: []string{
		"seq", "service", "identity", "cause", "status", "dead_letter_topic", "id", "origin_topic", "handler", "class",
		"reason", "type", "stack_hash", "description", "first_failed_at", "last_failed_at", "stored_at", "seen", "size",
		"seal_key", "arrived_redrive_id", "arrived_letter", "redrive_id", "marked_at", "marked_by", "marked_why", "token",
		"leased_until", "leased_by", "moved_from",
	}}},
}

// bodies is the table of the metadata and payloads.
var bodies = schema.Table{
	Component: "letter_bodies", Name: "spillway_letter_bodies", Key: []string{"body"},
	Versions: []schema.Version{{File: file, Columns: []string{"body", "metadata", "payload"}}},
}

// leases is the table of claims on letters.
var leases = schema.Table{
	Component: "letter_claims", Name: "spillway_letter_claims", Key: []string{"token"},
	Versions: []schema.Version{{File: file, Columns: []string{"token", "leased_until", "first_seq", "last_seq"}}},
}

// causes is the table of what the letters of a cause have in common.
var causes = schema.Table{
	Component: "letter_causes", Name: "spillway_letter_causes", Key: []string{"service", "cause"},
	Versions: []schema.Version{{File: file, Columns: []string{
		"service", "cause", "dead_letter_topic", "origin_topic", "handler", "class", "reason", "type", "stack_hash",
	}}},
}

// notes is the table of what persons say of a cause.
var notes = schema.Table{
	Component: "cause_notes", Name: "spillway_cause_notes", Key: []string{"service", "cause"},
	Versions: []schema.Version{{File: file, Columns: []string{
		"service", "cause", "note", "owner", "link", "noted_by", "noted_at", "snoozed_until", "snoozed_by", "snoozed_at",
		"snoozed_rate", "woken_at", "gone_at",
	}}},
}

// counts is the table of how many letters each cause has.
var counts = schema.Table{
	Component: "letter_counts", Name: "spillway_letter_counts", Key: []string{"service", "cause", "slot"},
	Versions: []schema.Version{{File: file, Columns: []string{
		"service", "cause", "slot", "waiting", "redriven", "succeeded", "failed_again", "quarantined", "refused", "discarded",
		"erased", "arrived", "first_failed_at", "last_failed_at", "last_seq", "minute", "in_minute", "minute_before", "recent",
	}}},
}

// events is the table of what became of letters.
var events = schema.Table{
	Component: "letter_events", Name: "spillway_letter_events", Key: []string{"event"},
	Versions: []schema.Version{{File: file, Columns: []string{
		"event", "service", "letter", "identity", "message", "kind", "at", "actor", "reason", "redrive_id", "detail",
	}}},
}

// statements are what the databases say each in its own way.
type statements struct {
	// insert stores a letter, or counts that it arrived again. Its arguments are those of record.args. If there is
	// returning, it returns the letter's Seq and how often it arrived.
	insert    string
	returning bool
	// count adds to the numbers of a cause.
	count string
	// unless ends an INSERT of a cause that may be there already.
	unless string
	// byCause comes behind the name of the table if a statement must find letters by their status and cause.
	byCause string
	// knowsArrived says that there is an index of the letters that arrived with the id of a redrive.
	knowsArrived bool
	// toBack puts the letter of an identity, which this transaction has to itself, behind all others.
	toBack string
	// contains is the condition that an expression contains a text, compared by their bytes.
	contains func(expression string) string
	// byKey comes behind the name of the table if a statement must find letters by their key, and lock no others.
	byKey string
	// several comes first in a transaction that writes more than one letter. Empty if there is no need.
	several string
}

var statementsOf = map[database.Kind]statements{
	database.SQLite: {
		insert: insert + onConflict, returning: true, knowsArrived: true,
		count:    countStatement(countsConflict),
		unless:   causeThere,
		byCause:  ` INDEXED BY spillway_dead_letters_status_cause`,
		toBack:   `UPDATE spillway_dead_letters SET ` + movedFrom + `, seq = ` + sqliteBehind + ` WHERE identity = ?`,
		contains: func(e string) string { return `instr(CAST(` + e + ` AS BLOB), CAST(? AS BLOB)) > 0` },
	},
	database.Postgres: {
		insert: insert + onConflict, returning: true, knowsArrived: true,
		count:    countStatement(countsConflict),
		unless:   causeThere,
		toBack:   `UPDATE spillway_dead_letters SET ` + movedFrom + `, seq = DEFAULT WHERE identity = ?`,
		contains: func(e string) string { return `position(?::bytea IN ` + e + `) > 0` },
		// Two transactions that write the same letters in different orders would wait for each other. So each waits for
		// the other to end first: a deadlock costs a second, and a crowd of them never ends. The first number is "spil"
		// in ASCII.
		several: `SELECT pg_advisory_xact_lock(1936746860, 'spillway_dead_letters'::regclass::oid::int)`,
	},
	database.MySQL: { // a deadlock is noticed at once, and its transaction runs again: several need no lock in front
		insert:   insert + onDuplicate,
		count:    countStatement(countsDuplicate),
		unless:   `ON DUPLICATE KEY UPDATE spillway_letter_causes.cause = spillway_letter_causes.cause`,
		byCause:  ` FORCE INDEX (spillway_dead_letters_status_cause)`,
		toBack:   mysqlToBack,
		contains: func(e string) string { return `LOCATE(?, ` + e + `) > 0` },
		byKey:    ` FORCE INDEX (PRIMARY)`, // of a small table the server would rather read, and so lock, all rows
	},
}

// causeThere names the index that it means: it says nothing of another.
const causeThere = `ON CONFLICT (service, cause) DO NOTHING`

// movedFrom keeps the Seq that names the body of the letter. MySQL assigns from left to right.
const movedFrom = `moved_from = CASE WHEN spillway_dead_letters.moved_from = 0 THEN spillway_dead_letters.seq ELSE spillway_dead_letters.moved_from END`

const sqliteBehind = `(SELECT MAX(seq) + 1 FROM spillway_dead_letters)`

// mysqlToBack lets the letter conflict with itself, for a number that was given to no other letter: one that UPDATE
// makes up would be given out again by MariaDB, and the letter that got it would overwrite this one. An INSERT of a
// SELECT would lock all numbers.
const mysqlToBack = `
INSERT INTO spillway_dead_letters (` + insertColumns + `)
VALUES (?, '', '', '', '', '', '', '', '', '', 0, 0, 0, '', '', 0, '', '', '')
ON DUPLICATE KEY UPDATE ` + movedFrom + `, seq = VALUES(seq)`

// upsert is how a database names the old and the new values of a row that is there already, and joins texts.
type upsert struct {
	begin, newBefore, newAfter, old string
	join                            func(texts ...string) string
}

var (
	countsConflict = upsert{"ON CONFLICT (service, cause, slot) DO UPDATE SET", "excluded.", "", "spillway_letter_counts.",
		func(texts ...string) string { return strings.Join(texts, " || ") }}
	countsDuplicate = upsert{"ON DUPLICATE KEY UPDATE", "VALUES(", ")", "",
		func(texts ...string) string { return "CONCAT(" + strings.Join(texts, ", ") + ")" }}
)

// counted are the columns that a transaction adds to.
func counted() (columns []string) {
	for _, status := range Statuses() {
		columns = append(columns, string(status))
	}
	return append(columns, "arrived", "first_failed_at", "last_failed_at", "last_seq", "minute", "in_minute")
}

// countInto begins a statement that counts.
func countInto() string {
	return "INSERT INTO spillway_letter_counts (service, cause, slot, " + strings.Join(counted(), ", ") +
		", minute_before)\n"
}

// countStatement adds to the numbers of one cause in one slot.
func countStatement(u upsert) string {
	marks := slices.Repeat([]string{"?"}, len(counted())+3)
	return countInto() + "VALUES (" + strings.Join(marks, ", ") + ", 0)\n" + u.add()
}

// add is what becomes of a row that is there. MySQL assigns from left to right, and reads what it has assigned already:
// minute comes last.
func (u upsert) add() string {
	var sets, names []string
	for _, status := range Statuses() {
		sets = append(sets, strings.ReplaceAll("status = old.status + new(status)", "status", string(status)))
	}
	sets = append(sets,
		"arrived = old.arrived + new(arrived)",
		"first_failed_at = CASE WHEN new(first_failed_at) < old.first_failed_at THEN new(first_failed_at) ELSE "+
			"old.first_failed_at END",
		"last_failed_at = CASE WHEN new(last_failed_at) > old.last_failed_at THEN new(last_failed_at) ELSE "+
			"old.last_failed_at END",
		"last_seq = CASE WHEN new(last_seq) > old.last_seq THEN new(last_seq) ELSE old.last_seq END",
		"minute_before = CASE WHEN new(minute) <= old.minute THEN old.minute_before WHEN new(minute) = old.minute + 1 THEN "+
			"old.in_minute ELSE 0 END",
		"recent = CASE WHEN new(minute) <= old.minute THEN old.recent WHEN new(minute) > old.minute + 60 THEN '' ELSE "+
			"SUBSTR("+u.join("(old.minute % 1000)", "':'", "old.in_minute", "' '", "old.recent")+", 1, 720) END",
		"in_minute = CASE WHEN new(minute) <= old.minute THEN old.in_minute + new(in_minute) ELSE new(in_minute) END",
		"minute = CASE WHEN new(minute) > old.minute THEN new(minute) ELSE old.minute END",
	)
	for _, column := range counted() {
		names = append(names, "new("+column+")", u.newBefore+column+u.newAfter)
	}
	return u.begin + "\n\t" + strings.NewReplacer(append(names, "old.", u.old)...).Replace(strings.Join(sets, ",\n\t"))
}
