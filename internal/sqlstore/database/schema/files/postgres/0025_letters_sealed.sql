-- The table of dead letters, version 5: the keys of sealed letters.
--
-- Adding the column takes an instant, however large the table is.

-- The id of the key that the letter is sealed with, ? if the letter does not say, or nothing if it is not sealed.
ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS seal_key text NOT NULL DEFAULT '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 5, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
