-- The table of dead letters, version 7: cheap leases.
--
-- This takes an instant, however large the table is.

-- Without this index a lease changes no indexed column. Half of each page stays free, so that a lease and its end write no
-- index: a letter's metadata and payload are elsewhere. The pages that are there stay as they are.
DROP INDEX IF EXISTS spillway_dead_letters_token;

ALTER TABLE spillway_dead_letters SET (fillfactor = 50);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 7, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
