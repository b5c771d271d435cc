-- The table of campaigns, version 1.

-- A campaign a row. request and left_out are JSON. Times are microseconds since 1970. rate is in letters per 1,000 seconds,
-- and next_due is when the next letter may be published. The counts are of rows in spillway_campaign_letters.
CREATE TABLE IF NOT EXISTS spillway_campaigns (
	id              VARBINARY(255) NOT NULL PRIMARY KEY,
	service         VARBINARY(255) NOT NULL,
	state           VARBINARY(32)  NOT NULL,
	version         BIGINT         NOT NULL DEFAULT 1,
	request         LONGBLOB       NOT NULL,
	created_at      BIGINT         NOT NULL,
	resume_to       VARBINARY(32)  NOT NULL DEFAULT '',
	why             LONGBLOB       NOT NULL DEFAULT (''),
	approved_by     LONGBLOB       NOT NULL DEFAULT (''),
	left_out        LONGBLOB       NOT NULL DEFAULT (''),
	not_before      BIGINT         NOT NULL DEFAULT 0,
	started_at      BIGINT         NOT NULL DEFAULT 0,
	ended_at        BIGINT         NOT NULL DEFAULT 0,
	resume_at       BIGINT         NOT NULL DEFAULT 0,
	pauses          BIGINT         NOT NULL DEFAULT 0,
	rate            BIGINT         NOT NULL DEFAULT 0,
	claims          BIGINT         NOT NULL DEFAULT 0,
	next_due        BIGINT         NOT NULL DEFAULT 0,
	canary          BIGINT         NOT NULL DEFAULT 0,
	canary_at       BIGINT         NOT NULL DEFAULT 0,
	leased_until    BIGINT         NOT NULL DEFAULT 0,
	select_after    BIGINT         NOT NULL DEFAULT 0,
	max_seq         BIGINT         NOT NULL DEFAULT 0,
	selected        BIGINT         NOT NULL DEFAULT 0,
	redriven        BIGINT         NOT NULL DEFAULT 0,
	quarantined     BIGINT         NOT NULL DEFAULT 0,
	refused         BIGINT         NOT NULL DEFAULT 0,
	failed          BIGINT         NOT NULL DEFAULT 0,
	gone            BIGINT         NOT NULL DEFAULT 0,
	succeeded       BIGINT         NOT NULL DEFAULT 0,
	failed_again    BIGINT         NOT NULL DEFAULT 0,
	heard_before    BIGINT         NOT NULL DEFAULT 0,
	failed_before   BIGINT         NOT NULL DEFAULT 0,
	redriven_before BIGINT         NOT NULL DEFAULT 0,
	swept           BIGINT         NOT NULL DEFAULT 0,
	INDEX spillway_campaigns_service (service, created_at),
	INDEX spillway_campaigns_state (service, state)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
