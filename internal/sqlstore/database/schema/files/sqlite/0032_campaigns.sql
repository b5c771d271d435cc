-- The table of campaigns, version 3: campaigns that a standing policy started.
--
-- Adding the columns takes an instant.

-- The name of the policy, or nothing, and the cause whose letters it redrives.
ALTER TABLE spillway_campaigns ADD COLUMN policy TEXT NOT NULL DEFAULT '';

ALTER TABLE spillway_campaigns ADD COLUMN cause TEXT NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_campaigns_policy ON spillway_campaigns (service, policy, created_at) WHERE policy <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 3, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
