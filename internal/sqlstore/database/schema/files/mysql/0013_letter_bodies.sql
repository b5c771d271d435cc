-- The bodies of dead letters, version 1.

-- The metadata and the payload of a letter, apart from what lists read. body is the seq that the letter was stored with. The
-- letters of earlier versions have their metadata and payload in spillway_dead_letters, and keep them there.
CREATE TABLE IF NOT EXISTS spillway_letter_bodies (
	body            BIGINT NOT NULL PRIMARY KEY,
	letter_metadata LONGBLOB NOT NULL,
	letter_payload  LONGBLOB
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_bodies', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
