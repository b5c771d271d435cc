-- The table of unfinished deliveries, version 1.

-- A mark a row: a delivery that began while an unclean end was under suspicion, and has not ended. marked_at is milliseconds
-- since 1970.
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
VALUES ('deliveries', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
