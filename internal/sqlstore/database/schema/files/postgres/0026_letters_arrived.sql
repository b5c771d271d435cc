-- The table of dead letters, version 6: which letter a message was brought back from.
--
-- Adding the column takes an instant, however large the table is. Making the index takes a second for a million letters, and no
-- letter can be written meanwhile. In a live database with many letters run that statement before this file, outside of a transaction,
-- with CREATE INDEX CONCURRENTLY: this file, and Spillway, then find the index.

-- The x-redriven-letter that the letter arrived with, or nothing.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS arrived_letter text NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_arrived_letter ON spillway_dead_letters (arrived_letter) WHERE arrived_letter <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 6, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
