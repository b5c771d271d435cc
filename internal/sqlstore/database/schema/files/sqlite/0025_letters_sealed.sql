-- The table of dead letters, version 5: the keys of sealed letters.
--
-- Adding the column takes an instant, however large the table is.

-- The id of the key that the letter is sealed with, ? if the letter does not say, or nothing if it is not sealed.
ALTER TABLE spillway_dead_letters ADD COLUMN seal_key TEXT NOT NULL DEFAULT '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 5, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
