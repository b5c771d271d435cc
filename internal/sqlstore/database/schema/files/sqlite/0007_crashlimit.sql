-- Running processes, and deliveries that did not return.

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

-- A mark a row: a delivery that began while an unclean end was under suspicion, and has not ended. marked_at is
-- milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service   TEXT NOT NULL,
	consumer  TEXT NOT NULL,
	id        TEXT NOT NULL,
	redrives  INTEGER NOT NULL,
	delivery  INTEGER NOT NULL,
	process   TEXT NOT NULL,
	marked_at INTEGER NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('processes', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('deliveries', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
