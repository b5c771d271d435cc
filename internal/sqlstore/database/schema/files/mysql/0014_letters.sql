-- The table of dead letters, version 3: indexes of causes and ids, holders of leases.
--
-- Adding the columns takes an instant, however large the table is. Making the indexes takes some seconds for a million letters.
-- The server lets others write meanwhile. In a live database with many letters run this file by hand before a new program
-- starts: the program would give up after 30 seconds.

-- leased_by: the process that has the lease. moved_from: the seq that the letter was stored with, if it has another one now.
ALTER TABLE spillway_dead_letters
	ADD COLUMN leased_by VARBINARY(255) NOT NULL DEFAULT '',
	ADD COLUMN moved_from BIGINT NOT NULL DEFAULT 0;

ALTER TABLE spillway_dead_letters
	ADD INDEX spillway_dead_letters_status_cause (service, status, cause, seq),
	ADD INDEX spillway_dead_letters_id (id(64)),
	ADD INDEX spillway_dead_letters_redrive (redrive_id, seq);

-- The index of version 2, which the one of states and causes replaces.
DROP INDEX spillway_dead_letters_cause ON spillway_dead_letters;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
