-- The table of running processes, version 1.

-- A running process a row, which it updates at every heartbeat. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_processes (
	service    TEXT NOT NULL,
	id         TEXT NOT NULL PRIMARY KEY,
	node       TEXT NOT NULL,
	beat_ms    INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	beats      INTEGER NOT NULL,
	lost_at    INTEGER
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('processes', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
