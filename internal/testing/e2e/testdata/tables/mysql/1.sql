CREATE TABLE IF NOT EXISTS spillway_schema (
	component  VARBINARY(64) NOT NULL,
	version    BIGINT        NOT NULL,
	applied_at BIGINT        NOT NULL,
	PRIMARY KEY (component, version)
) ENGINE=InnoDB;

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

CREATE TABLE IF NOT EXISTS spillway_schema (
	component  VARBINARY(64) NOT NULL,
	version    BIGINT NOT NULL,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (component, version)
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS spillway_dead_letters (
	seq               BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
	identity          VARBINARY(64)  NOT NULL UNIQUE,
	dead_letter_topic LONGBLOB       NOT NULL,
	id                LONGBLOB       NOT NULL,
	metadata          LONGBLOB       NOT NULL,
	payload           LONGBLOB,
	origin_topic      LONGBLOB       NOT NULL,
	handler           LONGBLOB       NOT NULL,
	class             VARBINARY(32)  NOT NULL,
	reason            LONGBLOB       NOT NULL,
	type              LONGBLOB       NOT NULL,
	stack_hash        LONGBLOB       NOT NULL,
	description       LONGBLOB       NOT NULL,
	first_failed_at   BIGINT         NOT NULL,
	last_failed_at    BIGINT         NOT NULL,
	status            VARBINARY(32)  NOT NULL DEFAULT 'waiting',
	seen              BIGINT         NOT NULL DEFAULT 1,
	stored_at         BIGINT         NOT NULL,
	token             VARBINARY(64)  NOT NULL DEFAULT '',
	leased_until      BIGINT         NOT NULL DEFAULT 0,
	marked_at         BIGINT         NOT NULL DEFAULT 0,
	marked_by         LONGBLOB       NOT NULL DEFAULT (''),
	marked_why        VARBINARY(255) NOT NULL DEFAULT '',
	redrive_id        VARBINARY(255) NOT NULL DEFAULT '',
	INDEX spillway_dead_letters_token (token)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
CREATE TABLE IF NOT EXISTS spillway_delayed (
	seq      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service  VARBINARY(255)  NOT NULL,
	topic    VARBINARY(1024) NOT NULL,
	size     BIGINT          NOT NULL,
	due_at   BIGINT          NOT NULL,
	ready_at BIGINT          NOT NULL,
	token    VARBINARY(64)   NOT NULL DEFAULT '',
	failures BIGINT          NOT NULL DEFAULT 0,
	id       LONGBLOB        NOT NULL,
	metadata LONGBLOB        NOT NULL,
	payload  LONGBLOB,
	INDEX spillway_delayed_ready (service, ready_at, due_at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS spillway_processes (
	service    VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL PRIMARY KEY,
	node       VARBINARY(255) NOT NULL,
	beat_ms    BIGINT NOT NULL,
	started_at BIGINT NOT NULL,
	beats      BIGINT NOT NULL,
	lost_at    BIGINT
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service    VARBINARY(255) NOT NULL,
	consumer   VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL,
	redrives   BIGINT NOT NULL,
	delivery   BIGINT NOT NULL,
	process    VARBINARY(255) NOT NULL,
	marked_at  BIGINT NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
) ENGINE=InnoDB;
