-- The table of dead letters, version 1.

-- A letter a row. The message as it arrived is in id, metadata and payload. The other columns repeat what letters are
-- chosen by, or say what became of the letter. Times are microseconds since 1970. Names are bytes: they may be no text.
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
);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_token ON spillway_dead_letters (token) WHERE token <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
