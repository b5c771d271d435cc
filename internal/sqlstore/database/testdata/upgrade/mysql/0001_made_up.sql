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
