-- Running processes, and deliveries that did not return.

-- A running process a row, which it updates at every heartbeat. Times are milliseconds since 1970. Keys compare by
-- their bytes: text ignores trailing spaces, and as a rule case.
CREATE TABLE IF NOT EXISTS spillway_processes (
	service    VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL PRIMARY KEY,
	node       VARBINARY(255) NOT NULL,
	beat_ms    BIGINT NOT NULL,
	started_at BIGINT NOT NULL,
	beats      BIGINT NOT NULL,
	lost_at    BIGINT
) ENGINE=InnoDB;

-- A mark a row: a delivery that began while an unclean end was under suspicion, and has not ended. marked_at is
-- milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service   VARBINARY(255) NOT NULL,
	consumer  VARBINARY(255) NOT NULL,
	id        VARBINARY(255) NOT NULL,
	redrives  BIGINT NOT NULL,
	delivery  BIGINT NOT NULL,
	process   VARBINARY(255) NOT NULL,
	marked_at BIGINT NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
) ENGINE=InnoDB;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('processes', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('deliveries', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
