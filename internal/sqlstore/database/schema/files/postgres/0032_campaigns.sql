-- The table of campaigns, version 3: campaigns that a standing policy started.
--
-- Adding the columns takes an instant.

-- The name of the policy, or nothing, and the cause whose letters it redrives.
ALTER TABLE spillway_campaigns ADD COLUMN IF NOT EXISTS policy text COLLATE "C" NOT NULL DEFAULT '';

ALTER TABLE spillway_campaigns ADD COLUMN IF NOT EXISTS cause text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_campaigns_policy ON spillway_campaigns (service, policy, created_at) WHERE policy <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
