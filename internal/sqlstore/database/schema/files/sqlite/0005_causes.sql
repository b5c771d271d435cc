-- The table of dead letters, version 2: services, causes and sizes.
--
-- Adding the columns takes an instant, however large the table is. Making the indexes takes about a second for a million
-- letters. Nothing can be written to the file meanwhile.
--
-- The store computes the causes of the rows that are there when it is opened.

-- StoreConfig.Service of the store that took the letter.
ALTER TABLE spillway_dead_letters ADD COLUMN service BLOB NOT NULL DEFAULT x'';

-- The hash of what failed, where and how. Empty: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN cause TEXT NOT NULL DEFAULT '';

-- The bytes of metadata and payload. -1: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN size INTEGER NOT NULL DEFAULT -1;

-- The x-redrive-id that the letter arrived with: the drain that brought it back before it failed again.
ALTER TABLE spillway_dead_letters ADD COLUMN arrived_redrive_id TEXT NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

-- The index of version 1, which the one of services replaces.
DROP INDEX IF EXISTS spillway_dead_letters_status;

-- Drains of version 1 refused letters whose topic was not allowed, so that no one saw them. Such letters wait now.
UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
