-- Outages that instances share.

-- An outage that an instance found a row, until expires_at, which the instance moves on while it lives. A freeze by
-- hand has no instance and does not expire. Times are milliseconds since 1970. Keys compare by their bytes: text
-- ignores trailing spaces, and as a rule case.
CREATE TABLE IF NOT EXISTS spillway_outages (
	service    VARBINARY(255) NOT NULL,
	handler    VARBINARY(255) NOT NULL,
	scope      VARBINARY(255) NOT NULL,
	instance   VARBINARY(255) NOT NULL,
	state      VARBINARY(32) NOT NULL,
	reason     VARBINARY(1024) NOT NULL,
	cause      VARBINARY(4096) NOT NULL,
	actor      VARBINARY(1024) NOT NULL,
	since      BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (service, handler, scope, instance)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('outages', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
