-- The table of dead letters, version 7: cheap leases.
--
-- Making the index takes a second for a million letters, and no letter can be written meanwhile. In a live database with many
-- letters run that statement before this file, outside of a transaction, with CREATE INDEX CONCURRENTLY: this file, and
-- Spillway, then find the index.

-- Without this index a lease changes no indexed column. Half of each page stays free, so that a lease and its end write no
-- index: a letter's metadata and payload are elsewhere. The pages that are there stay as they are.
DROP INDEX IF EXISTS spillway_dead_letters_token;

ALTER TABLE spillway_dead_letters SET (fillfactor = 50);

-- The letters that arrived with the id of a redrive: a campaign asks whether there are any, again and again.
CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived ON spillway_dead_letters (arrived_redrive_id) WHERE arrived_redrive_id <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 7, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
