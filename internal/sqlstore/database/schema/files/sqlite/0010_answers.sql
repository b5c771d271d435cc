-- Answers that instances share.

-- What one instance asked the database, for all instances: turn_at is when an instance took its turn to ask, and
-- answered_at the turn of the answer, or 0. Times are microseconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS spillway_answers (
	service     TEXT NOT NULL,
	name        TEXT NOT NULL,
	turn_at     INTEGER NOT NULL,
	answered_at INTEGER NOT NULL,
	answer      BLOB NOT NULL,
	PRIMARY KEY (service, name)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('answers', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
