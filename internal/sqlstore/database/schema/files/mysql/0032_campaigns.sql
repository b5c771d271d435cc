-- The table of campaigns, version 3: campaigns that a standing policy started.
--
-- Adding the columns takes an instant.

-- The name of the policy, or nothing, and the cause whose letters it redrives.
ALTER TABLE spillway_campaigns ADD COLUMN policy VARBINARY(255) NOT NULL DEFAULT '';

ALTER TABLE spillway_campaigns ADD COLUMN cause VARBINARY(255) NOT NULL DEFAULT '';

ALTER TABLE spillway_campaigns ADD INDEX spillway_campaigns_policy (service, policy, created_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaigns', 3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
