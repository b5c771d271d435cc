-- Messages that wait.

-- A message a row. Times are microseconds since 1970. Numbers are never given out again, so a deleted one stays
-- deleted. Columns that may be large are last: SQLite would read all of them for what is behind them. A row can be
-- taken when ready_at is over: that is due_at at first, and later the end of a lease or of a wait.
CREATE TABLE IF NOT EXISTS spillway_delayed (
	seq      INTEGER PRIMARY KEY AUTOINCREMENT,
	service  BLOB NOT NULL,
	topic    BLOB NOT NULL,
	size     INTEGER NOT NULL,
	due_at   INTEGER NOT NULL,
	ready_at INTEGER NOT NULL,
	token    TEXT NOT NULL DEFAULT '',
	failures INTEGER NOT NULL DEFAULT 0,
	id       BLOB NOT NULL,
	metadata BLOB NOT NULL,
	payload  BLOB
);

CREATE INDEX IF NOT EXISTS spillway_delayed_ready ON spillway_delayed (service, ready_at, due_at, seq, topic);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('delayed', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
