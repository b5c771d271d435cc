-- Spillway, the table of keys, version 1, for MySQL 8.0 or later and MariaDB 10.5 or later.
--
-- Run these files in the order of their names, in the database that your programs use. Spillway runs the same files when a
-- store is initialized, and then does nothing that is done already. A statement ends with a semicolon at the end of a
-- line, a comment has its lines to itself: so the files can be split where statements must come one by one.

CREATE TABLE IF NOT EXISTS spillway_schema (
	component  VARBINARY(64) NOT NULL,
	version    BIGINT        NOT NULL,
	applied_at BIGINT        NOT NULL,
	PRIMARY KEY (component, version)
) ENGINE=InnoDB;

-- The columns of the key compare by their bytes: text ignores trailing spaces, and as a rule case. They hold at most 255
-- bytes, and an index of InnoDB takes 3072.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL,
	outputs    LONGBLOB,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (consumer, id)
) ENGINE=InnoDB;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
