-- The numbers of dead letters by cause, version 3: letters that were erased.
--
-- Adding the column takes an instant, however large the table is.

ALTER TABLE spillway_letter_counts ADD COLUMN IF NOT EXISTS erased bigint NOT NULL DEFAULT 0;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
