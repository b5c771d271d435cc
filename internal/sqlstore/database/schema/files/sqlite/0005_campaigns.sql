-- Campaigns, and standing policies.

-- A campaign a row. policy is the standing policy that started it, and cause the one whose letters it redrives, or
-- nothing. request and left_out are JSON. Times are microseconds since 1970. rate is in letters per 1,000 seconds,
-- next_due is when the next letter may be published, and late the time in which the campaign stood still and for which
-- it makes up. The counts are of rows in spillway_campaign_letters.
CREATE TABLE IF NOT EXISTS spillway_campaigns (
	id              TEXT NOT NULL PRIMARY KEY,
	service         BLOB NOT NULL,
	policy          TEXT NOT NULL DEFAULT '',
	cause           TEXT NOT NULL DEFAULT '',
	state           TEXT NOT NULL,
	version         INTEGER NOT NULL DEFAULT 1,
	request         TEXT NOT NULL,
	created_at      INTEGER NOT NULL,
	resume_to       TEXT NOT NULL DEFAULT '',
	why             TEXT NOT NULL DEFAULT '',
	approved_by     TEXT NOT NULL DEFAULT '',
	left_out        TEXT NOT NULL DEFAULT '',
	not_before      INTEGER NOT NULL DEFAULT 0,
	started_at      INTEGER NOT NULL DEFAULT 0,
	ended_at        INTEGER NOT NULL DEFAULT 0,
	resume_at       INTEGER NOT NULL DEFAULT 0,
	pauses          INTEGER NOT NULL DEFAULT 0,
	rate            INTEGER NOT NULL DEFAULT 0,
	claims          INTEGER NOT NULL DEFAULT 0,
	next_due        INTEGER NOT NULL DEFAULT 0,
	late            INTEGER NOT NULL DEFAULT 0,
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
CREATE INDEX IF NOT EXISTS spillway_campaigns_policy ON spillway_campaigns (service, policy, created_at) WHERE policy <> '';

-- A letter of a campaign a row. claim is the letter's seq until the campaign is through with it, and then NULL: the
-- unique index keeps a letter from being in two campaigns at a time. rest_until is the end of a wait after a refusal,
-- in microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_letters (
	campaign        TEXT NOT NULL,
	seq             INTEGER NOT NULL,
	claim           INTEGER,
	first_failed_at INTEGER NOT NULL,
	size            INTEGER NOT NULL DEFAULT 0,
	state           TEXT NOT NULL DEFAULT 'pending',
	rest_until      INTEGER NOT NULL DEFAULT 0,
	tries           INTEGER NOT NULL DEFAULT 0,
	done_at         INTEGER NOT NULL DEFAULT 0,
	why             TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (campaign, seq)
);

CREATE UNIQUE INDEX IF NOT EXISTS spillway_campaign_letters_claim ON spillway_campaign_letters (claim) WHERE claim IS NOT NULL;
CREATE INDEX IF NOT EXISTS spillway_campaign_letters_next ON spillway_campaign_letters (campaign, first_failed_at, seq) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS spillway_campaign_letters_left ON spillway_campaign_letters (campaign, state) WHERE state IN ('refused', 'failed', 'gone');

-- An event a row. Rows are only added. occurred_at is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_events (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	campaign    TEXT NOT NULL,
	occurred_at INTEGER NOT NULL,
	what        TEXT NOT NULL,
	actor       TEXT NOT NULL,
	reason      TEXT NOT NULL,
	details     TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS spillway_campaign_events_campaign ON spillway_campaign_events (campaign, seq);

-- The row without a name and a cause is all policies of the service, the row without a cause is a policy, and the
-- others are causes of a policy. stopped is 1 for what is frozen, and for a cause that is blocked. Otherwise changed_at
-- is when a person thawed or released it. rule is the policy in words, and seen_at when a worker had it last. Times are
-- microseconds since 1970. version is written by each decision, so that of two one waits for the other.
CREATE TABLE IF NOT EXISTS spillway_policies (
	service     BLOB NOT NULL,
	name        TEXT NOT NULL,
	cause       TEXT NOT NULL,
	version     INTEGER NOT NULL DEFAULT 1,
	rule        TEXT NOT NULL DEFAULT '',
	seen_at     INTEGER NOT NULL DEFAULT 0,
	stopped     INTEGER NOT NULL DEFAULT 0,
	changed_at  INTEGER NOT NULL DEFAULT 0,
	changed_by  TEXT NOT NULL DEFAULT '',
	changed_why TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (service, name, cause)
) WITHOUT ROWID;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_events', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('policies', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
