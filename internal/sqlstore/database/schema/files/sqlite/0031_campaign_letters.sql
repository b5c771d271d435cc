-- The table of the letters of campaigns, version 2: cheap claims.
--
-- Making the indexes takes some seconds for a million letters of campaigns.

-- A letter that a campaign is through with is in none of these.
DROP INDEX IF EXISTS spillway_campaign_letters_claim;

CREATE UNIQUE INDEX IF NOT EXISTS spillway_campaign_letters_held ON spillway_campaign_letters (claim) WHERE claim IS NOT NULL;

DROP INDEX IF EXISTS spillway_campaign_letters_next;

CREATE INDEX IF NOT EXISTS spillway_campaign_letters_pending ON spillway_campaign_letters (campaign, first_failed_at, seq) WHERE state = 'pending';

-- What a campaign left behind.
CREATE INDEX IF NOT EXISTS spillway_campaign_letters_left ON spillway_campaign_letters (campaign, state) WHERE state IN ('refused', 'failed', 'gone');

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('campaign_letters', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
