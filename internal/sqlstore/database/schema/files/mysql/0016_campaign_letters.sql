-- The table of the letters of campaigns, version 1.

-- A letter of a campaign a row. claim is the letter's seq until the campaign is through with it, and then NULL: the unique
-- index keeps a letter from being in two campaigns at a time. leased_until is the end of a lease, or of a wait, in
-- microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_letters (
	campaign        VARBINARY(255) NOT NULL,
	seq             BIGINT         NOT NULL,
	claim           BIGINT,
	first_failed_at BIGINT         NOT NULL,
	size            BIGINT         NOT NULL DEFAULT 0,
	state           VARBINARY(32)  NOT NULL DEFAULT 'pending',
	token           VARBINARY(255) NOT NULL DEFAULT '',
	leased_until    BIGINT         NOT NULL DEFAULT 0,
	tries           BIGINT         NOT NULL DEFAULT 0,
	done_at         BIGINT         NOT NULL DEFAULT 0,
	why             LONGBLOB       NOT NULL DEFAULT (''),
	PRIMARY KEY (campaign, seq),
	UNIQUE INDEX spillway_campaign_letters_claim (claim),
	INDEX spillway_campaign_letters_next (campaign, state, first_failed_at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
