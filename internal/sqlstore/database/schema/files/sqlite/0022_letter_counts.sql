-- The numbers of dead letters by cause, version 3: letters that were erased.
--
-- Adding the column takes an instant, however large the table is.

ALTER TABLE spillway_letter_counts ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 3, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
