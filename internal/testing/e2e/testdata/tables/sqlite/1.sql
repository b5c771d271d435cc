CREATE TABLE IF NOT EXISTS spillway_schema (
	component  TEXT    NOT NULL,
	version    INTEGER NOT NULL,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (component, version)
);

CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	outputs    BLOB,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS spillway_schema (
	component  TEXT NOT NULL,
	version    INTEGER NOT NULL,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (component, version)
);

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
CREATE TABLE IF NOT EXISTS spillway_delayed (
	seq      INTEGER PRIMARY KEY AUTOINCREMENT,
	service  BLOB    NOT NULL,
	topic    BLOB    NOT NULL,
	size     INTEGER NOT NULL,
	due_at   INTEGER NOT NULL,
	ready_at INTEGER NOT NULL,
	token    TEXT    NOT NULL DEFAULT '',
	failures INTEGER NOT NULL DEFAULT 0,
	id       BLOB    NOT NULL,
	metadata BLOB    NOT NULL,
	payload  BLOB
);

CREATE INDEX IF NOT EXISTS spillway_delayed_ready ON spillway_delayed (service, ready_at, due_at, seq);

CREATE TABLE IF NOT EXISTS spillway_processes (
	service    TEXT    NOT NULL,
	id         TEXT    NOT NULL PRIMARY KEY,
	node       TEXT    NOT NULL,
	beat_ms    INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	beats      INTEGER NOT NULL,
	lost_at    INTEGER
);

CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service    TEXT    NOT NULL,
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	redrives   INTEGER NOT NULL,
	delivery   INTEGER NOT NULL,
	process    TEXT    NOT NULL,
	marked_at  INTEGER NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
);
