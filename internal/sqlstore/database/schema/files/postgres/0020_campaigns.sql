-- The table of campaigns, version 2: time to make up for.
--
-- Adding the column takes an instant.

-- late is the time in which the campaign stood still and for which it makes up, in microseconds.
ALTER TABLE spillway_campaigns ADD COLUMN IF NOT EXISTS late bigint NOT NULL DEFAULT 0;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
