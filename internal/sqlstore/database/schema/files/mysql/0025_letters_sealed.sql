-- The table of dead letters, version 5: the keys of sealed letters.
--
-- Adding the column takes an instant, however large the table is.

-- seal_key: the id of the key that the letter is sealed with, ? if the letter does not say, or nothing if it is not sealed.
ALTER TABLE spillway_dead_letters ADD COLUMN seal_key VARBINARY(64) NOT NULL DEFAULT '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 5, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
