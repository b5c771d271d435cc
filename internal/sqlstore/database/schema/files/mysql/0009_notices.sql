-- Notices that instances share.

-- An episode a row: what is reported of one subject, until a window goes by without a report. telling is what an
-- instance is about to tell, under a lease. Kinds that begin with a dot count, and tell nothing. Times are microseconds
-- since 1970.
CREATE TABLE IF NOT EXISTS spillway_notices (
	service      VARBINARY(255) NOT NULL,
	kind         VARBINARY(255) NOT NULL,
	subject      VARBINARY(255) NOT NULL,
	opened_at    BIGINT NOT NULL,
	ends_at      BIGINT NOT NULL,
	total        BIGINT NOT NULL,
	untold       BIGINT NOT NULL,
	first_at     BIGINT NOT NULL,
	last_at      BIGINT NOT NULL,
	about        LONGBLOB NOT NULL,
	telling      VARBINARY(255) NOT NULL,
	said         BIGINT NOT NULL,
	number       BIGINT NOT NULL,
	holder       VARBINARY(255) NOT NULL,
	leased_until BIGINT NOT NULL,
	tries        BIGINT NOT NULL,
	PRIMARY KEY (service, kind, subject)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('notices', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
