-- The table of campaigns, version 1.

-- A campaign a row. request and left_out are JSON. Times are microseconds since 1970. rate is in letters per 1,000 seconds,
-- and next_due is when the next letter may be published. The counts are of rows in spillway_campaign_letters.
CREATE TABLE IF NOT EXISTS spillway_campaigns (
	id              text COLLATE "C" NOT NULL PRIMARY KEY,
	service         bytea            NOT NULL,
	state           text             NOT NULL,
	version         bigint           NOT NULL DEFAULT 1,
	request         text             NOT NULL,
	created_at      bigint           NOT NULL,
	resume_to       text             NOT NULL DEFAULT '',
	why             text             NOT NULL DEFAULT '',
	approved_by     text             NOT NULL DEFAULT '',
	left_out        text             NOT NULL DEFAULT '',
	not_before      bigint           NOT NULL DEFAULT 0,
	started_at      bigint           NOT NULL DEFAULT 0,
	ended_at        bigint           NOT NULL DEFAULT 0,
	resume_at       bigint           NOT NULL DEFAULT 0,
	pauses          bigint           NOT NULL DEFAULT 0,
	rate            bigint           NOT NULL DEFAULT 0,
	claims          bigint           NOT NULL DEFAULT 0,
	next_due        bigint           NOT NULL DEFAULT 0,
	canary          bigint           NOT NULL DEFAULT 0,
	canary_at       bigint           NOT NULL DEFAULT 0,
	leased_until    bigint           NOT NULL DEFAULT 0,
	select_after    bigint           NOT NULL DEFAULT 0,
	max_seq         bigint           NOT NULL DEFAULT 0,
	selected        bigint           NOT NULL DEFAULT 0,
	redriven        bigint           NOT NULL DEFAULT 0,
	quarantined     bigint           NOT NULL DEFAULT 0,
	refused         bigint           NOT NULL DEFAULT 0,
	failed          bigint           NOT NULL DEFAULT 0,
	gone            bigint           NOT NULL DEFAULT 0,
	succeeded       bigint           NOT NULL DEFAULT 0,
	failed_again    bigint           NOT NULL DEFAULT 0,
	heard_before    bigint           NOT NULL DEFAULT 0,
	failed_before   bigint           NOT NULL DEFAULT 0,
	redriven_before bigint           NOT NULL DEFAULT 0,
	swept           bigint           NOT NULL DEFAULT 0
);

CREATE INDEX IF NOT EXISTS spillway_campaigns_service ON spillway_campaigns (service, created_at);

CREATE INDEX IF NOT EXISTS spillway_campaigns_state ON spillway_campaigns (service, state);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
