-- The table of dead letters, version 6: which letter a message was brought back from.
--
-- Adding the column takes an instant, however large the table is. Making the index takes a second for a million letters, and
-- nothing can be written to the file meanwhile.

-- The x-redriven-letter that the letter arrived with, or nothing.
ALTER TABLE spillway_dead_letters ADD COLUMN arrived_letter TEXT NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived_letter ON spillway_dead_letters (arrived_letter) WHERE arrived_letter <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 6, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
