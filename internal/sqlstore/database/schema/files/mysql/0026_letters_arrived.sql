-- The table of dead letters, version 6: which letter a message was brought back from.
--
-- Adding the column takes an instant, however large the table is. Making the index takes some seconds for a million letters.
-- The server lets others write meanwhile. In a live database with many letters run this file by hand before a new program starts: the
-- program would give up after 30 seconds.

-- The x-redriven-letter that the letter arrived with, or nothing.
ALTER TABLE spillway_dead_letters ADD COLUMN arrived_letter VARBINARY(32) NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD INDEX spillway_dead_letters_arrived_letter (arrived_letter);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 6, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
