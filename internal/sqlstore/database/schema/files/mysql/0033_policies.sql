-- The table of standing policies, version 1.

-- The row without a name and a cause is all policies of the service, the row without a cause is a policy, and the others
-- are causes of a policy. stopped is 1 for what is frozen, and for a cause that is blocked. Otherwise changed_at is when a
-- person thawed or released it. rule is the policy in words, and seen_at when a worker had it last. Times are microseconds
-- since 1970. version is written by each decision, so that of two one waits for the other.
CREATE TABLE IF NOT EXISTS spillway_policies (
	service     VARBINARY(255) NOT NULL,
	name        VARBINARY(255) NOT NULL,
	cause       VARBINARY(255) NOT NULL,
	version     BIGINT         NOT NULL DEFAULT 1,
	rule        LONGBLOB       NOT NULL DEFAULT (''),
	seen_at     BIGINT         NOT NULL DEFAULT 0,
	stopped     BIGINT         NOT NULL DEFAULT 0,
	changed_at  BIGINT         NOT NULL DEFAULT 0,
	changed_by  LONGBLOB       NOT NULL DEFAULT (''),
	changed_why LONGBLOB       NOT NULL DEFAULT (''),
	PRIMARY KEY (service, name, cause)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('policies', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
