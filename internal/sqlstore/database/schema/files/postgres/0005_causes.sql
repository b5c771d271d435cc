-- The table of dead letters, version 2: services, causes and sizes.
--
-- Adding the columns takes an instant, however large the table is. The statement waits for the transactions that use the
-- table at that moment, and all others wait behind it.
--
-- Making the indexes takes some seconds for a million letters. No letter can be written meanwhile. In a live database with
-- many letters run those statements before this file, outside of a transaction, with CREATE INDEX CONCURRENTLY: this file,
-- and Spillway, then find the indexes.
--
-- The store computes the causes of the rows that are there when it is opened.

-- StoreConfig.Service of the store that took the letter.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS service bytea NOT NULL DEFAULT '';

-- The hash of what failed, where and how. Empty: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS cause text NOT NULL DEFAULT '';

-- The bytes of metadata and payload. -1: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS size bigint NOT NULL DEFAULT -1;

-- The x-redrive-id that the letter arrived with: the drain that brought it back before it failed again.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS arrived_redrive_id bytea NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

-- The index of version 1, which the one of services replaces.
DROP INDEX IF EXISTS spillway_dead_letters_status;

-- Drains of version 1 refused letters whose topic was not allowed, so that no one saw them. Such letters wait now.
UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
