-- The table of dead letters, version 3: indexes of causes and ids, holders of leases.
--
-- Adding the columns takes an instant, however large the table is. Making the indexes takes some seconds for a million letters.
-- Nothing can be written to the file meanwhile.

-- The process that has the lease.
ALTER TABLE spillway_dead_letters ADD COLUMN leased_by TEXT NOT NULL DEFAULT '';

-- The seq that the letter was stored with, if it has another one now. Otherwise 0.
ALTER TABLE spillway_dead_letters ADD COLUMN moved_from INTEGER NOT NULL DEFAULT 0;

CREATE INDEX IF NOT EXISTS spillway_dead_letters_status_cause ON spillway_dead_letters (service, status, cause, seq);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_id ON spillway_dead_letters (id);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_no_cause ON spillway_dead_letters (seq) WHERE cause = '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_redrive ON spillway_dead_letters (redrive_id, seq) WHERE redrive_id <> '';

-- The index of version 2, which the one of states and causes replaces.
DROP INDEX IF EXISTS spillway_dead_letters_cause;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 3, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
