-- The table of dead letters, version 7: cheap leases.
--
-- Making the index takes a second for a million letters. Nothing can be written to the file meanwhile.

-- Without this index a lease changes no indexed column.
DROP INDEX IF EXISTS spillway_dead_letters_token;

-- The letters that arrived with the id of a redrive: a campaign asks whether there are any, again and again.
CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived ON spillway_dead_letters (arrived_redrive_id) WHERE arrived_redrive_id <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 7, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
