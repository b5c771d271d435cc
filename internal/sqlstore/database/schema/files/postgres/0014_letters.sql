-- The table of dead letters, version 3: indexes of causes and ids, holders of leases.
--
-- Adding the columns takes an instant, however large the table is. Making the indexes takes some seconds for a million letters.
-- No letter can be written meanwhile. In a live database with many letters run those statements before this file, outside of a
-- transaction, with CREATE INDEX CONCURRENTLY: this file, and Spillway, then find the indexes.

-- The process that has the lease.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS leased_by bytea NOT NULL DEFAULT '';

-- The seq that the letter was stored with, if it has another one now. Otherwise 0.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS moved_from bigint NOT NULL DEFAULT 0;

CREATE INDEX IF NOT EXISTS spillway_dead_letters_status_cause ON spillway_dead_letters (service, status, cause, seq);

-- Of equality alone, and of ids of any length.
CREATE INDEX IF NOT EXISTS spillway_dead_letters_id ON spillway_dead_letters USING hash (id);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_no_cause ON spillway_dead_letters (seq) WHERE cause = '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_redrive ON spillway_dead_letters (redrive_id, seq) WHERE redrive_id <> '';

-- The index of version 2, which the one of states and causes replaces.
DROP INDEX IF EXISTS spillway_dead_letters_cause;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
