-- Dead letters.

-- A letter a row, without its body. identity is the same for the same letter that arrives again, and cause is the hash
-- of what failed, where and how. size is the bytes of metadata and payload. seal_key is the id of the key that the
-- letter is sealed with, or ? if the letter does not say, or nothing. arrived_redrive_id and arrived_letter are what
-- the letter arrived with: the redrive that brought its message back, and the letter that it was. moved_from is the seq
-- that the letter was stored with, if it has another one now, or 0. Times are microseconds since 1970. What comes with
-- a message is a BLOB, or a TEXT of any bytes.
CREATE TABLE IF NOT EXISTS spillway_dead_letters (
	seq                INTEGER PRIMARY KEY AUTOINCREMENT,
	service            BLOB NOT NULL,
	identity           BLOB NOT NULL UNIQUE,
	cause              TEXT NOT NULL,
	status             TEXT NOT NULL DEFAULT 'waiting',
	dead_letter_topic  BLOB NOT NULL,
	id                 BLOB NOT NULL,
	origin_topic       BLOB NOT NULL,
	handler            BLOB NOT NULL,
	class              TEXT NOT NULL,
	reason             TEXT NOT NULL,
	type               TEXT NOT NULL,
	stack_hash         TEXT NOT NULL,
	description        TEXT NOT NULL,
	first_failed_at    INTEGER NOT NULL,
	last_failed_at     INTEGER NOT NULL,
	stored_at          INTEGER NOT NULL,
	seen               INTEGER NOT NULL DEFAULT 1,
	size               INTEGER NOT NULL,
	seal_key           TEXT NOT NULL,
	arrived_redrive_id TEXT NOT NULL,
	arrived_letter     TEXT NOT NULL,
	redrive_id         TEXT NOT NULL DEFAULT '',
	marked_at          INTEGER NOT NULL DEFAULT 0,
	marked_by          TEXT NOT NULL DEFAULT '',
	marked_why         TEXT NOT NULL DEFAULT '',
	token              TEXT NOT NULL DEFAULT '',
	leased_until       INTEGER NOT NULL DEFAULT 0,
	leased_by          TEXT NOT NULL DEFAULT '',
	moved_from         INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);
CREATE INDEX IF NOT EXISTS spillway_dead_letters_status_cause ON spillway_dead_letters (service, status, cause, seq);
CREATE INDEX IF NOT EXISTS spillway_dead_letters_id ON spillway_dead_letters (id);
CREATE INDEX IF NOT EXISTS spillway_dead_letters_redrive ON spillway_dead_letters (redrive_id, seq) WHERE redrive_id <> '';
CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived ON spillway_dead_letters (arrived_redrive_id) WHERE arrived_redrive_id <> '';
CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived_letter ON spillway_dead_letters (arrived_letter) WHERE arrived_letter <> '';

-- The metadata and the payload of a letter, apart from what lists read. body is the seq that the letter was stored
-- with.
CREATE TABLE IF NOT EXISTS spillway_letter_bodies (
	body     INTEGER PRIMARY KEY,
	metadata BLOB NOT NULL,
	payload  BLOB
);

-- A claim of a drain or a campaign a row: the least and the greatest seq that it leased. It bounds where leased letters
-- are looked for. The letters themselves say which have a lease. leased_until is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_claims (
	token        TEXT NOT NULL PRIMARY KEY,
	leased_until INTEGER NOT NULL,
	first_seq    INTEGER NOT NULL,
	last_seq     INTEGER NOT NULL
);

-- What the letters of a cause have in common. A row is written with the first letter of a cause, and never changed.
CREATE TABLE IF NOT EXISTS spillway_letter_causes (
	service           BLOB NOT NULL,
	cause             TEXT NOT NULL,
	dead_letter_topic BLOB NOT NULL,
	origin_topic      BLOB NOT NULL,
	handler           BLOB NOT NULL,
	class             TEXT NOT NULL,
	reason            TEXT NOT NULL,
	type              TEXT NOT NULL,
	stack_hash        TEXT NOT NULL,
	PRIMARY KEY (service, cause)
) WITHOUT ROWID;

-- What persons say of a cause: a note, an owner, a link, and until when it is snoozed. snoozed_rate is how many letters
-- arrived in the hour before the snooze. woken_at is set if the cause grew beyond it. gone_at is since when no letter of
-- the cause waits. Times are microseconds since 1970, or 0.
CREATE TABLE IF NOT EXISTS spillway_cause_notes (
	service       BLOB NOT NULL,
	cause         TEXT NOT NULL,
	note          TEXT NOT NULL,
	owner         TEXT NOT NULL,
	link          TEXT NOT NULL,
	noted_by      TEXT NOT NULL,
	noted_at      INTEGER NOT NULL,
	snoozed_until INTEGER NOT NULL,
	snoozed_by    TEXT NOT NULL,
	snoozed_at    INTEGER NOT NULL,
	snoozed_rate  INTEGER NOT NULL,
	woken_at      INTEGER NOT NULL,
	gone_at       INTEGER NOT NULL,
	PRIMARY KEY (service, cause)
) WITHOUT ROWID;

-- How many letters of a cause have each status, and how many arrived ever, and of late. A number is the sum over the
-- slots: each writer counts in a slot of its own, so that writers do not wait for each other. A number of one slot can
-- be negative. minute is the last one with an arrival, in minutes since 1970. recent has the minutes before, the latest
-- first, each as the minute modulo 1,000, a colon, the number of arrivals and a space; no minute is more than 60 before
-- the one in front of it. The row without a cause says when the numbers were compared with the letters: its minute.
-- Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_counts (
	service         BLOB NOT NULL,
	cause           TEXT NOT NULL,
	slot            INTEGER NOT NULL,
	waiting         INTEGER NOT NULL,
	redriven        INTEGER NOT NULL,
	succeeded       INTEGER NOT NULL,
	failed_again    INTEGER NOT NULL,
	quarantined     INTEGER NOT NULL,
	refused         INTEGER NOT NULL,
	discarded       INTEGER NOT NULL,
	erased          INTEGER NOT NULL,
	arrived         INTEGER NOT NULL,
	first_failed_at INTEGER NOT NULL,
	last_failed_at  INTEGER NOT NULL,
	last_seq        INTEGER NOT NULL,
	minute          INTEGER NOT NULL,
	in_minute       INTEGER NOT NULL,
	minute_before   INTEGER NOT NULL,
	recent          TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (service, cause, slot)
) WITHOUT ROWID;

-- The record of what became of letters, an event a row. Rows are only ever added: a role that may not UPDATE or DELETE
-- here is enough for every program, but for an erasure. The rows of a letter that is purged stay. Times are
-- microseconds since 1970. message is the message's id if it can be read, and otherwise its hash.
CREATE TABLE IF NOT EXISTS spillway_letter_events (
	event      INTEGER PRIMARY KEY AUTOINCREMENT,
	service    BLOB NOT NULL,
	letter     INTEGER NOT NULL,
	identity   BLOB NOT NULL,
	message    TEXT NOT NULL,
	kind       TEXT NOT NULL,
	at         INTEGER NOT NULL,
	actor      TEXT NOT NULL,
	reason     TEXT NOT NULL,
	redrive_id TEXT NOT NULL,
	detail     TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS spillway_letter_events_message ON spillway_letter_events (message, event);
CREATE INDEX IF NOT EXISTS spillway_letter_events_letter ON spillway_letter_events (letter, event);
CREATE INDEX IF NOT EXISTS spillway_letter_events_redrive ON spillway_letter_events (redrive_id, event) WHERE redrive_id <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_bodies', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_claims', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('cause_notes', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_causes', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_events', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
