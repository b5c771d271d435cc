-- Campaigns, and standing policies.

-- A campaign a row. policy is the standing policy that started it, and cause the one whose letters it redrives, or
-- nothing. request and left_out are JSON. Times are microseconds since 1970. rate is in letters per 1,000 seconds,
-- next_due is when the next letter may be published, and late the time in which the campaign stood still and for which
-- it makes up. The counts are of rows in spillway_campaign_letters.
CREATE TABLE IF NOT EXISTS spillway_campaigns (
	id              VARBINARY(255) NOT NULL PRIMARY KEY,
	service         VARBINARY(255) NOT NULL,
	policy          VARBINARY(255) NOT NULL DEFAULT '',
	cause           VARBINARY(255) NOT NULL DEFAULT '',
	state           VARBINARY(32) NOT NULL,
	version         BIGINT NOT NULL DEFAULT 1,
	request         LONGBLOB NOT NULL,
	created_at      BIGINT NOT NULL,
	resume_to       VARBINARY(32) NOT NULL DEFAULT '',
	why             LONGBLOB NOT NULL DEFAULT (''),
	approved_by     LONGBLOB NOT NULL DEFAULT (''),
	left_out        LONGBLOB NOT NULL DEFAULT (''),
	not_before      BIGINT NOT NULL DEFAULT 0,
	started_at      BIGINT NOT NULL DEFAULT 0,
	ended_at        BIGINT NOT NULL DEFAULT 0,
	resume_at       BIGINT NOT NULL DEFAULT 0,
	pauses          BIGINT NOT NULL DEFAULT 0,
	rate            BIGINT NOT NULL DEFAULT 0,
	claims          BIGINT NOT NULL DEFAULT 0,
	next_due        BIGINT NOT NULL DEFAULT 0,
	late            BIGINT NOT NULL DEFAULT 0,
	canary          BIGINT NOT NULL DEFAULT 0,
	canary_at       BIGINT NOT NULL DEFAULT 0,
	leased_until    BIGINT NOT NULL DEFAULT 0,
	select_after    BIGINT NOT NULL DEFAULT 0,
	max_seq         BIGINT NOT NULL DEFAULT 0,
	selected        BIGINT NOT NULL DEFAULT 0,
	redriven        BIGINT NOT NULL DEFAULT 0,
	quarantined     BIGINT NOT NULL DEFAULT 0,
	refused         BIGINT NOT NULL DEFAULT 0,
	failed          BIGINT NOT NULL DEFAULT 0,
	gone            BIGINT NOT NULL DEFAULT 0,
	succeeded       BIGINT NOT NULL DEFAULT 0,
	failed_again    BIGINT NOT NULL DEFAULT 0,
	heard_before    BIGINT NOT NULL DEFAULT 0,
	failed_before   BIGINT NOT NULL DEFAULT 0,
	redriven_before BIGINT NOT NULL DEFAULT 0,
	swept           BIGINT NOT NULL DEFAULT 0,
	INDEX spillway_campaigns_service (service, created_at),
	INDEX spillway_campaigns_state (service, state),
	INDEX spillway_campaigns_policy (service, policy, created_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- A letter of a campaign a row. claim is the letter's seq until the campaign is through with it, and then NULL: the
-- unique index keeps a letter from being in two campaigns at a time. rest_until is the end of a wait after a refusal,
-- in microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_letters (
	campaign        VARBINARY(255) NOT NULL,
	seq             BIGINT NOT NULL,
	claim           BIGINT,
	first_failed_at BIGINT NOT NULL,
	size            BIGINT NOT NULL DEFAULT 0,
	state           VARBINARY(32) NOT NULL DEFAULT 'pending',
	rest_until      BIGINT NOT NULL DEFAULT 0,
	tries           BIGINT NOT NULL DEFAULT 0,
	done_at         BIGINT NOT NULL DEFAULT 0,
	why             LONGBLOB NOT NULL DEFAULT (''),
	PRIMARY KEY (campaign, seq),
	UNIQUE INDEX spillway_campaign_letters_claim (claim),
	INDEX spillway_campaign_letters_next (campaign, state, first_failed_at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- An event a row. Rows are only added. occurred_at is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_events (
	seq         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	campaign    VARBINARY(255) NOT NULL,
	occurred_at BIGINT NOT NULL,
	what        VARBINARY(32) NOT NULL,
	actor       LONGBLOB NOT NULL,
	reason      LONGBLOB NOT NULL,
	details     LONGBLOB NOT NULL,
	INDEX spillway_campaign_events_campaign (campaign, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The row without a name and a cause is all policies of the service, the row without a cause is a policy, and the
-- others are causes of a policy. stopped is 1 for what is frozen, and for a cause that is blocked. Otherwise changed_at
-- is when a person thawed or released it. rule is the policy in words, and seen_at when a worker had it last. Times are
-- microseconds since 1970. version is written by each decision, so that of two one waits for the other.
CREATE TABLE IF NOT EXISTS spillway_policies (
	service     VARBINARY(255) NOT NULL,
	name        VARBINARY(255) NOT NULL,
	cause       VARBINARY(255) NOT NULL,
	version     BIGINT NOT NULL DEFAULT 1,
	rule        LONGBLOB NOT NULL DEFAULT (''),
	seen_at     BIGINT NOT NULL DEFAULT 0,
	stopped     BIGINT NOT NULL DEFAULT 0,
	changed_at  BIGINT NOT NULL DEFAULT 0,
	changed_by  LONGBLOB NOT NULL DEFAULT (''),
	changed_why LONGBLOB NOT NULL DEFAULT (''),
	PRIMARY KEY (service, name, cause)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_events', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('policies', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
