-- The table of keys, version 3: keys that are settled without an effect.
--
-- Adding the columns takes an instant, however large the table is.

-- A key with settled_source was dead-lettered, discarded or skipped in a sequence: its message had no effect. Deliveries
-- of this source, up to this position and this count of redrives, are absorbed. expires_at is 0 then: a program that does
-- not know these columns takes the key for one whose lease is over.
ALTER TABLE spillway_keys ADD COLUMN settled_source VARBINARY(32);

ALTER TABLE spillway_keys ADD COLUMN settled_position BIGINT;

ALTER TABLE spillway_keys ADD COLUMN settled_redrives BIGINT;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
