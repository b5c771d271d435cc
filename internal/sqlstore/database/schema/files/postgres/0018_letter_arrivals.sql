-- The numbers of dead letters by cause, version 2: arrivals of the last hour.
--
-- Adding the column takes an instant, however large the table is.

-- The minutes before the last one with an arrival, the latest first, each as the minute modulo 1,000, a colon, the number of
-- arrivals and a space. No minute is more than 60 before the one in front of it.
ALTER TABLE spillway_letter_counts ADD COLUMN IF NOT EXISTS recent text NOT NULL DEFAULT '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
