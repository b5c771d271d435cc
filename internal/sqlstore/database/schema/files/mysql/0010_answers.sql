-- Answers that instances share.

-- What one instance asked the database, for all instances: turn_at is when an instance took its turn to ask, and
-- answered_at the turn of the answer, or 0. Times are microseconds since 1970, by the database's clock. Keys compare by
-- their bytes.
CREATE TABLE IF NOT EXISTS spillway_answers (
	service     VARBINARY(255) NOT NULL,
	name        VARBINARY(255) NOT NULL,
	turn_at     BIGINT NOT NULL,
	answered_at BIGINT NOT NULL,
	answer      LONGBLOB NOT NULL,
	PRIMARY KEY (service, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('answers', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
