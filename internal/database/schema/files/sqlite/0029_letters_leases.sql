-- The table of dead letters, version 7: cheap leases.

-- Without this index a lease changes no indexed column.
DROP INDEX IF EXISTS spillway_dead_letters_token;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 7, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
