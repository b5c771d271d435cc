-- Dead letters.

-- A letter a row, without its body. identity is the same for the same letter that arrives again, and cause is the hash
-- of what failed, where and how. size is the bytes of metadata and payload. seal_key is the id of the key that the
-- letter is sealed with, or ? if the letter does not say, or nothing. arrived_redrive_id and arrived_letter are what
-- the letter arrived with: the redrive that brought its message back, and the letter that it was. moved_from is the seq
-- that the letter was stored with, if it has another one now, or 0. Times are microseconds since 1970. All columns are
-- bytes: text has a collation, under which different texts are the same. Numbers are given out before their rows are
-- committed, so a letter can appear behind one with a greater seq.
CREATE TABLE IF NOT EXISTS spillway_dead_letters (
	seq                BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service            VARBINARY(255) NOT NULL,
	identity           VARBINARY(64) NOT NULL UNIQUE,
	cause              VARBINARY(64) NOT NULL,
	status             VARBINARY(32) NOT NULL DEFAULT 'waiting',
	dead_letter_topic  LONGBLOB NOT NULL,
	id                 LONGBLOB NOT NULL,
	origin_topic       LONGBLOB NOT NULL,
	handler            LONGBLOB NOT NULL,
	class              VARBINARY(32) NOT NULL,
	reason             LONGBLOB NOT NULL,
	type               LONGBLOB NOT NULL,
	stack_hash         LONGBLOB NOT NULL,
	description        LONGBLOB NOT NULL,
	first_failed_at    BIGINT NOT NULL,
	last_failed_at     BIGINT NOT NULL,
	stored_at          BIGINT NOT NULL,
	seen               BIGINT NOT NULL DEFAULT 1,
	size               BIGINT NOT NULL,
	seal_key           VARBINARY(64) NOT NULL,
	arrived_redrive_id VARBINARY(255) NOT NULL,
	arrived_letter     VARBINARY(32) NOT NULL,
	redrive_id         VARBINARY(255) NOT NULL DEFAULT '',
	marked_at          BIGINT NOT NULL DEFAULT 0,
	marked_by          LONGBLOB NOT NULL DEFAULT (''),
	marked_why         VARBINARY(255) NOT NULL DEFAULT '',
	token              VARBINARY(64) NOT NULL DEFAULT '',
	leased_until       BIGINT NOT NULL DEFAULT 0,
	leased_by          VARBINARY(255) NOT NULL DEFAULT '',
	moved_from         BIGINT NOT NULL DEFAULT 0,
	INDEX spillway_dead_letters_service (service, status, seq),
	INDEX spillway_dead_letters_status_cause (service, status, cause, seq),
	INDEX spillway_dead_letters_id (id(64)),
	INDEX spillway_dead_letters_redrive (redrive_id, seq),
	INDEX spillway_dead_letters_arrived_letter (arrived_letter)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The metadata and the payload of a letter, apart from what lists read. body is the seq that the letter was stored
-- with.
CREATE TABLE IF NOT EXISTS spillway_letter_bodies (
	body     BIGINT NOT NULL PRIMARY KEY,
	metadata LONGBLOB NOT NULL,
	payload  LONGBLOB
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- A claim of a drain or a campaign a row: the least and the greatest seq that it leased. It bounds where leased letters
-- are looked for. The letters themselves say which have a lease. leased_until is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_claims (
	token        VARBINARY(255) NOT NULL PRIMARY KEY,
	leased_until BIGINT NOT NULL,
	first_seq    BIGINT NOT NULL,
	last_seq     BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What the letters of a cause have in common. A row is written with the first letter of a cause, and never changed.
CREATE TABLE IF NOT EXISTS spillway_letter_causes (
	service           VARBINARY(255) NOT NULL,
	cause             VARBINARY(255) NOT NULL,
	dead_letter_topic LONGBLOB NOT NULL,
	origin_topic      LONGBLOB NOT NULL,
	handler           LONGBLOB NOT NULL,
	class             VARBINARY(32) NOT NULL,
	reason            LONGBLOB NOT NULL,
	type              LONGBLOB NOT NULL,
	stack_hash        LONGBLOB NOT NULL,
	PRIMARY KEY (service, cause)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What persons say of a cause: a note, an owner, a link, and until when it is snoozed. snoozed_rate is how many letters
-- arrived in the hour before the snooze. woken_at is set if the cause grew beyond it. gone_at is since when no letter of
-- the cause waits. Times are microseconds since 1970, or 0.
CREATE TABLE IF NOT EXISTS spillway_cause_notes (
	service       VARBINARY(255) NOT NULL,
	cause         VARBINARY(255) NOT NULL,
	note          LONGBLOB NOT NULL,
	owner         LONGBLOB NOT NULL,
	link          LONGBLOB NOT NULL,
	noted_by      LONGBLOB NOT NULL,
	noted_at      BIGINT NOT NULL,
	snoozed_until BIGINT NOT NULL,
	snoozed_by    LONGBLOB NOT NULL,
	snoozed_at    BIGINT NOT NULL,
	snoozed_rate  BIGINT NOT NULL,
	woken_at      BIGINT NOT NULL,
	gone_at       BIGINT NOT NULL,
	PRIMARY KEY (service, cause)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- How many letters of a cause have each status, and how many arrived ever, and of late. A number is the sum over the
-- slots: each writer counts in a slot of its own, so that writers do not wait for each other. A number of one slot can
-- be negative. minute is the last one with an arrival, in minutes since 1970. recent has the minutes before, the latest
-- first, each as the minute modulo 1,000, a colon, the number of arrivals and a space; no minute is more than 60 before
-- the one in front of it. The row without a cause says when the numbers were compared with the letters: its minute.
-- Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_counts (
	service         VARBINARY(255) NOT NULL,
	cause           VARBINARY(255) NOT NULL,
	slot            BIGINT NOT NULL,
	waiting         BIGINT NOT NULL,
	redriven        BIGINT NOT NULL,
	succeeded       BIGINT NOT NULL,
	failed_again    BIGINT NOT NULL,
	quarantined     BIGINT NOT NULL,
	refused         BIGINT NOT NULL,
	discarded       BIGINT NOT NULL,
	erased          BIGINT NOT NULL,
	arrived         BIGINT NOT NULL,
	first_failed_at BIGINT NOT NULL,
	last_failed_at  BIGINT NOT NULL,
	last_seq        BIGINT NOT NULL,
	minute          BIGINT NOT NULL,
	in_minute       BIGINT NOT NULL,
	minute_before   BIGINT NOT NULL,
	recent          VARBINARY(1000) NOT NULL DEFAULT '',
	PRIMARY KEY (service, cause, slot)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The record of what became of letters, an event a row. Rows are only ever added: a role that may not UPDATE or DELETE
-- here is enough for every program, but for an erasure. The rows of a letter that is purged stay. Times are
-- microseconds since 1970. message is the message's id if it can be read, and otherwise its hash.
CREATE TABLE IF NOT EXISTS spillway_letter_events (
	event      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service    VARBINARY(255) NOT NULL,
	letter     BIGINT NOT NULL,
	identity   VARBINARY(64) NOT NULL,
	message    VARBINARY(255) NOT NULL,
	kind       VARBINARY(32) NOT NULL,
	at         BIGINT NOT NULL,
	actor      LONGBLOB NOT NULL,
	reason     LONGBLOB NOT NULL,
	redrive_id VARBINARY(255) NOT NULL,
	detail     LONGBLOB NOT NULL,
	INDEX spillway_letter_events_message (message, event),
	INDEX spillway_letter_events_letter (letter, event),
	INDEX spillway_letter_events_redrive (redrive_id, event)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_bodies', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_claims', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('cause_notes', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_causes', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_events', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
