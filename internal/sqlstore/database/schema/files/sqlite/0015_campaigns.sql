-- The table of campaigns, version 1.

-- A campaign a row. request and left_out are JSON. Times are microseconds since 1970. rate is in letters per 1,000 seconds,
-- and next_due is when the next letter may be published. The counts are of rows in spillway_campaign_letters.
CREATE TABLE IF NOT EXISTS spillway_campaigns (
	id              TEXT    NOT NULL PRIMARY KEY,
	service         BLOB    NOT NULL,
	state           TEXT    NOT NULL,
	version         INTEGER NOT NULL DEFAULT 1,
	request         TEXT    NOT NULL,
	created_at      INTEGER NOT NULL,
	resume_to       TEXT    NOT NULL DEFAULT '',
	why             TEXT    NOT NULL DEFAULT '',
	approved_by     TEXT    NOT NULL DEFAULT '',
	left_out        TEXT    NOT NULL DEFAULT '',
	not_before      INTEGER NOT NULL DEFAULT 0,
	started_at      INTEGER NOT NULL DEFAULT 0,
	ended_at        INTEGER NOT NULL DEFAULT 0,
	resume_at       INTEGER NOT NULL DEFAULT 0,
	pauses          INTEGER NOT NULL DEFAULT 0,
	rate            INTEGER NOT NULL DEFAULT 0,
	claims          INTEGER NOT NULL DEFAULT 0,
	next_due        INTEGER NOT NULL DEFAULT 0,
	canary          INTEGER NOT NULL DEFAULT 0,
	canary_at       INTEGER NOT NULL DEFAULT 0,
	leased_until    INTEGER NOT NULL DEFAULT 0,
	select_after    INTEGER NOT NULL DEFAULT 0,
	max_seq         INTEGER NOT NULL DEFAULT 0,
	selected        INTEGER NOT NULL DEFAULT 0,
	redriven        INTEGER NOT NULL DEFAULT 0,
	quarantined     INTEGER NOT NULL DEFAULT 0,
	refused         INTEGER NOT NULL DEFAULT 0,
	failed          INTEGER NOT NULL DEFAULT 0,
	gone            INTEGER NOT NULL DEFAULT 0,
	succeeded       INTEGER NOT NULL DEFAULT 0,
	failed_again    INTEGER NOT NULL DEFAULT 0,
	heard_before    INTEGER NOT NULL DEFAULT 0,
	failed_before   INTEGER NOT NULL DEFAULT 0,
	redriven_before INTEGER NOT NULL DEFAULT 0,
	swept           INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX IF NOT EXISTS spillway_campaigns_service ON spillway_campaigns (service, created_at);

CREATE INDEX IF NOT EXISTS spillway_campaigns_state ON spillway_campaigns (service, state);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
