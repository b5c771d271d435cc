-- The table of the letters of campaigns, version 1.

-- A letter of a campaign a row. claim is the letter's seq until the campaign is through with it, and then NULL: the unique
-- index keeps a letter from being in two campaigns at a time. leased_until is the end of a lease, or of a wait, in
-- microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_letters (
	campaign        text COLLATE "C" NOT NULL,
	seq             bigint           NOT NULL,
	claim           bigint,
	first_failed_at bigint           NOT NULL,
	size            bigint           NOT NULL DEFAULT 0,
	state           text             NOT NULL DEFAULT 'pending',
	token           text COLLATE "C" NOT NULL DEFAULT '',
	leased_until    bigint           NOT NULL DEFAULT 0,
	tries           bigint           NOT NULL DEFAULT 0,
	done_at         bigint           NOT NULL DEFAULT 0,
	why             text             NOT NULL DEFAULT '',
	PRIMARY KEY (campaign, seq)
);

CREATE UNIQUE INDEX IF NOT EXISTS spillway_campaign_letters_claim ON spillway_campaign_letters (claim);

CREATE INDEX IF NOT EXISTS spillway_campaign_letters_next ON spillway_campaign_letters (campaign, state, first_failed_at, seq);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
