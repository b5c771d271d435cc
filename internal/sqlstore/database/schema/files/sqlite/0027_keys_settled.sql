-- The table of keys, version 3: keys that are settled without an effect.
--
-- Adding the columns takes an instant, however large the table is.

-- A key with settled_source was dead-lettered, discarded or skipped in a sequence: its message had no effect. Deliveries
-- of this source, up to this position and this count of redrives, are absorbed. expires_at is 0 then: a program that does
-- not know these columns takes the key for one whose lease is over.
ALTER TABLE spillway_keys ADD COLUMN settled_source BLOB;

ALTER TABLE spillway_keys ADD COLUMN settled_position INTEGER;

ALTER TABLE spillway_keys ADD COLUMN settled_redrives INTEGER;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 3, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
