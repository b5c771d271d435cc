-- Messages that wait in the order of their key.

-- A message a row. source is the hash of service, group (members), topic and partition (part). lane is the key, or what
-- stands for a long one. The rows of a lane are in the order of seq. position and fingerprint say which message of the
-- source it is. due_at is microseconds since 1970. consumer and key_id are the message's key in spillway_keys, which a
-- purge leaves alone. bytes is what the message counts of a limit. decision is what a person decided: 1 release, 2
-- skip, 3 discard. The owner of the source carries it out.
CREATE TABLE IF NOT EXISTS spillway_parked (
	seq         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service     VARBINARY(255) NOT NULL,
	members     VARBINARY(1024) NOT NULL,
	topic       VARBINARY(1024) NOT NULL,
	part        BIGINT NOT NULL,
	source      VARBINARY(32) NOT NULL,
	lane        VARBINARY(255) NOT NULL,
	position    BIGINT NOT NULL,
	fingerprint VARBINARY(32) NOT NULL,
	redrives    BIGINT NOT NULL,
	due_at      BIGINT NOT NULL,
	held        BIGINT NOT NULL DEFAULT 0,
	sent_at     BIGINT NOT NULL,
	consumer    VARBINARY(255) NOT NULL,
	key_id      VARBINARY(255) NOT NULL,
	record_key  LONGBLOB,
	id          LONGBLOB NOT NULL,
	metadata    LONGBLOB NOT NULL,
	payload     LONGBLOB,
	bytes       BIGINT NOT NULL,
	decision    BIGINT NOT NULL DEFAULT 0,
	decided_at  BIGINT NOT NULL DEFAULT 0,
	decided_by  VARBINARY(1024) NOT NULL DEFAULT '',
	decided_why VARBINARY(1024) NOT NULL DEFAULT '',
	UNIQUE INDEX spillway_parked_message (source, position, fingerprint),
	INDEX spillway_parked_lane (source, lane, seq),
	INDEX spillway_parked_decided (source, decision),
	INDEX spillway_parked_key (consumer, key_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('parked', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
