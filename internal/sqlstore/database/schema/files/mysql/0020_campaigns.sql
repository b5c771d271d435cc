-- The table of campaigns, version 2: time to make up for.
--
-- Adding the column takes an instant.

-- late is the time in which the campaign stood still and for which it makes up, in microseconds.
ALTER TABLE spillway_campaigns ADD COLUMN late BIGINT NOT NULL DEFAULT 0;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
