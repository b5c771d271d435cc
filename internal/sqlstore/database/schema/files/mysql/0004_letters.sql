-- The table of dead letters, version 1.

-- A letter a row. The message as it arrived is in id, metadata and payload. The other columns repeat what letters are
-- chosen by, or say what became of the letter. Times are microseconds since 1970. All columns are bytes: text has a
-- collation, under which different texts are the same. Numbers are given out before their rows are committed, so a letter
-- can appear behind one with a greater seq.
CREATE TABLE IF NOT EXISTS spillway_dead_letters (
	seq               BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
	identity          VARBINARY(64)  NOT NULL UNIQUE,
	dead_letter_topic LONGBLOB       NOT NULL,
	id                LONGBLOB       NOT NULL,
	metadata          LONGBLOB       NOT NULL,
	payload           LONGBLOB,
	origin_topic      LONGBLOB       NOT NULL,
	handler           LONGBLOB       NOT NULL,
	class             VARBINARY(32)  NOT NULL,
	reason            LONGBLOB       NOT NULL,
	type              LONGBLOB       NOT NULL,
	stack_hash        LONGBLOB       NOT NULL,
	description       LONGBLOB       NOT NULL,
	first_failed_at   BIGINT         NOT NULL,
	last_failed_at    BIGINT         NOT NULL,
	status            VARBINARY(32)  NOT NULL DEFAULT 'waiting',
	seen              BIGINT         NOT NULL DEFAULT 1,
	stored_at         BIGINT         NOT NULL,
	token             VARBINARY(64)  NOT NULL DEFAULT '',
	leased_until      BIGINT         NOT NULL DEFAULT 0,
	marked_at         BIGINT         NOT NULL DEFAULT 0,
	marked_by         LONGBLOB       NOT NULL DEFAULT (''),
	marked_why        VARBINARY(255) NOT NULL DEFAULT '',
	redrive_id        VARBINARY(255) NOT NULL DEFAULT '',
	INDEX spillway_dead_letters_token (token)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
