-- The table of the letters of campaigns, version 2: nothing changes on this server.

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
