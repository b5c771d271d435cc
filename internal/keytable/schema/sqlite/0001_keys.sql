-- Spillway, the table of keys, version 1, for SQLite.
--
-- Run these files in the order of their names, each in a transaction. Spillway runs the same files when a store is
-- initialized, and then does nothing that is done already. A statement ends with a semicolon at the end of a line, a
-- comment has its lines to itself: so the files can be split where statements must come one by one.

CREATE TABLE IF NOT EXISTS spillway_schema (
	component  TEXT    NOT NULL,
	version    INTEGER NOT NULL,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (component, version)
);

-- The table has row ids on purpose: without them recorded outputs would lie in the index of the keys and make it deep. With
-- outputs of 1 KiB that cost half as much again a message, and saved a tenth without any.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	outputs    BLOB,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
