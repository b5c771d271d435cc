-- Messages that wait.

-- A message a row. Times are microseconds since 1970. All columns are bytes: text has a collation, under which
-- different texts are the same. A row can be taken when ready_at is over: that is due_at at first, and later the end of
-- a lease or of a wait.
CREATE TABLE IF NOT EXISTS spillway_delayed (
	seq      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service  VARBINARY(255) NOT NULL,
	topic    VARBINARY(1024) NOT NULL,
	size     BIGINT NOT NULL,
	due_at   BIGINT NOT NULL,
	ready_at BIGINT NOT NULL,
	token    VARBINARY(64) NOT NULL DEFAULT '',
	failures BIGINT NOT NULL DEFAULT 0,
	id       LONGBLOB NOT NULL,
	metadata LONGBLOB NOT NULL,
	payload  LONGBLOB,
	INDEX spillway_delayed_ready (service, ready_at, due_at, seq, topic)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('delayed', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
