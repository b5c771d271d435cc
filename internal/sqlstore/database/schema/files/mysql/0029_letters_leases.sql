-- The table of dead letters, version 7: cheap leases.

-- Without this index a lease changes no indexed column.
DROP INDEX spillway_dead_letters_token ON spillway_dead_letters;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 7, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
