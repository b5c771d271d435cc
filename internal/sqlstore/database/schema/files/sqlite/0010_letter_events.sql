-- The record of what became of dead letters, version 1.

-- An event a row. Rows are only ever added. The row of a letter that is purged stays. Times are microseconds since 1970.
-- message is the message's id if it can be read, and otherwise its hash.
CREATE TABLE IF NOT EXISTS spillway_letter_events (
	event      INTEGER PRIMARY KEY AUTOINCREMENT,
	service    BLOB    NOT NULL,
	letter     INTEGER NOT NULL,
	identity   BLOB    NOT NULL,
	message    TEXT    NOT NULL,
	kind       TEXT    NOT NULL,
	at         INTEGER NOT NULL,
	actor      TEXT    NOT NULL,
	reason     TEXT    NOT NULL,
	redrive_id TEXT    NOT NULL,
	detail     TEXT    NOT NULL
);

CREATE INDEX IF NOT EXISTS spillway_letter_events_message ON spillway_letter_events (message, event);

CREATE INDEX IF NOT EXISTS spillway_letter_events_letter ON spillway_letter_events (letter, event);

CREATE INDEX IF NOT EXISTS spillway_letter_events_redrive ON spillway_letter_events (redrive_id, event) WHERE redrive_id <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_events', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
