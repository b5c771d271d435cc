-- The table of what was done with campaigns, version 1.

-- An event a row. Rows are only added. occurred_at is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_campaign_events (
	seq         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	campaign    VARBINARY(255) NOT NULL,
	occurred_at BIGINT         NOT NULL,
	what        VARBINARY(32)  NOT NULL,
	actor       LONGBLOB       NOT NULL,
	reason      LONGBLOB       NOT NULL,
	details     LONGBLOB       NOT NULL,
	INDEX spillway_campaign_events_campaign (campaign, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_events', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
