-- The table of dead letters, version 2: services, causes and sizes.
--
-- Adding the columns takes an instant, however large the table is. The statement waits for the transactions that use the
-- table at that moment, and all others wait behind it. Making the indexes takes some seconds for a million letters, and the
-- server lets others write meanwhile. In a live database with many letters run this file by hand before a new program
-- starts: the program would give up after 30 seconds.
--
-- A table of version 1 may have the index spillway_dead_letters_status. Nothing uses it: drop it when you like.
--
-- The store computes the causes of the rows that are there when it is opened.

-- StoreConfig.Service of the store that took the letter.
ALTER TABLE spillway_dead_letters ADD COLUMN service VARBINARY(255) NOT NULL DEFAULT '';

-- The hash of what failed, where and how. Empty: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN cause VARBINARY(64) NOT NULL DEFAULT '';

-- The bytes of metadata and payload. -1: not computed yet.
ALTER TABLE spillway_dead_letters ADD COLUMN size BIGINT NOT NULL DEFAULT -1;

-- The x-redrive-id that the letter arrived with: the drain that brought it back before it failed again.
ALTER TABLE spillway_dead_letters ADD COLUMN arrived_redrive_id VARBINARY(255) NOT NULL DEFAULT '';

CREATE INDEX spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

-- Drains of version 1 refused letters whose topic was not allowed, so that no one saw them. Such letters wait now.
UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
