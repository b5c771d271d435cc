-- The record of what became of dead letters, version 1.

-- An event a row. Rows are only ever added: a user who may not UPDATE or DELETE here is enough for every program. The row of
-- a letter that is purged stays. Times are microseconds since 1970. message is the message's id if it can be read, and
-- otherwise its hash. All columns are bytes: text has a collation, under which different texts are the same.
CREATE TABLE IF NOT EXISTS spillway_letter_events (
	event      BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service    VARBINARY(255) NOT NULL,
	letter     BIGINT         NOT NULL,
	identity   VARBINARY(64)  NOT NULL,
	message    VARBINARY(255) NOT NULL,
	kind       VARBINARY(32)  NOT NULL,
	at         BIGINT         NOT NULL,
	actor      LONGBLOB       NOT NULL,
	reason     LONGBLOB       NOT NULL,
	redrive_id VARBINARY(255) NOT NULL,
	detail     LONGBLOB       NOT NULL,
	INDEX spillway_letter_events_message (message, event),
	INDEX spillway_letter_events_letter (letter, event),
	INDEX spillway_letter_events_redrive (redrive_id, event)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_events', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
