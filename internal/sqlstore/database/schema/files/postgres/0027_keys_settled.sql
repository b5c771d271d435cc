-- The table of keys, version 3: keys that are settled without an effect.
--
-- Adding the columns takes an instant, however large the table is.

-- A key with settled_source was dead-lettered, discarded or skipped in a sequence: its message had no effect. Deliveries
-- of this source, up to this position and this count of redrives, are absorbed. expires_at is 0 then: a program that does
-- not know these columns takes the key for one whose lease is over.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS settled_source bytea;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS settled_position bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS settled_redrives bigint;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
