package redrive

import "github.com/watermill-spillway/spillway/internal/sqlite"

// lettersTable holds a letter a row. The message as it arrived is in id, metadata and payload; the other columns repeat
// what is chosen and grouped by, or say what became of it. Times are microseconds since 1970; names are bytes, because
// nobody promises that they are text.
var lettersTable = sqlite.Table{
	Name: "spillway_dead_letters",
	Key:  []string{"seq"},
	Columns: []string{
		"seq", "identity", "dead_letter_topic", "id", "metadata", "payload",
		"origin_topic", "handler", "class", "reason", "type", "stack_hash", "description", "first_failed_at", "last_failed_at",
		"status", "seen", "stored_at", "token", "leased_until", "marked_at", "marked_by", "marked_why", "redrive_id",
	},
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

// insertLetter stores a letter, or notes that one arrived again. One that was redriven or discarded already waits again
// then, behind all others, so that a drain that is running does not meet it twice. Whoever holds a lease loses it: what
// they are about to mark may be the redrive that failed again just now, if its redrive count was lost on the way.
// Better a letter too many, which the receiver absorbs, than one too few.
const insertLetter = `
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload,
	origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (identity) DO UPDATE SET
	dead_letter_topic = excluded.dead_letter_topic,
	metadata          = excluded.metadata,
	class             = excluded.class,
	reason            = excluded.reason,
	type              = excluded.type,
	stack_hash        = excluded.stack_hash,
	description       = excluded.description,
	first_failed_at   = excluded.first_failed_at,
	last_failed_at    = excluded.last_failed_at,
	seen              = seen + 1,
	token             = '',
	leased_until      = 0,
	seq               = CASE WHEN status IN ('redriven', 'discarded') THEN (SELECT MAX(seq) + 1 FROM spillway_dead_letters) ELSE seq END,
	status            = CASE WHEN status IN ('redriven', 'discarded') THEN 'waiting' ELSE status END`
