-- The causes of dead letters, version 1.

-- What the letters of one cause have in common, and the description of the first of them. A row is written with the first
-- letter of a cause, and never changed.
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
	description       LONGBLOB NOT NULL,
	PRIMARY KEY (service, cause)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The causes of letters that are there. This reads the whole table of letters: some seconds for a million of them.
INSERT INTO spillway_letter_causes (service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description)
SELECT l.service, l.cause, l.dead_letter_topic, l.origin_topic, l.handler, l.class, l.reason, l.type, l.stack_hash, l.description
FROM spillway_dead_letters AS l
JOIN (SELECT MIN(seq) AS first FROM spillway_dead_letters WHERE cause <> '' GROUP BY service, cause) AS firsts ON l.seq = firsts.first
WHERE l.cause <> ''
ON DUPLICATE KEY UPDATE spillway_letter_causes.cause = spillway_letter_causes.cause;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_causes', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
