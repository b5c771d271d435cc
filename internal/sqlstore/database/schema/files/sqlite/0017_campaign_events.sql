-- The table of what was done with campaigns, version 1.

-- An event a row. Rows are only added. occurred_at is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_events (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	campaign    TEXT    NOT NULL,
	occurred_at INTEGER NOT NULL,
	what        TEXT    NOT NULL,
	actor       TEXT    NOT NULL,
	reason      TEXT    NOT NULL,
	details     TEXT    NOT NULL
);

CREATE INDEX IF NOT EXISTS spillway_campaign_events_campaign ON spillway_campaign_events (campaign, seq);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_events', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
