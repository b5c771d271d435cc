-- The table of standing policies, version 1.

-- The row without a name and a cause is all policies of the service, the row without a cause is a policy, and the others
-- are causes of a policy. stopped is 1 for what is frozen, and for a cause that is blocked. Otherwise changed_at is when a
-- person thawed or released it. rule is the policy in words, and seen_at when a worker had it last. Times are microseconds
-- since 1970. version is written by each decision, so that of two one waits for the other.
CREATE TABLE IF NOT EXISTS spillway_policies (
	service     BLOB    NOT NULL,
	name        TEXT    NOT NULL,
	cause       TEXT    NOT NULL,
	version     INTEGER NOT NULL DEFAULT 1,
	rule        TEXT    NOT NULL DEFAULT '',
	seen_at     INTEGER NOT NULL DEFAULT 0,
	stopped     INTEGER NOT NULL DEFAULT 0,
	changed_at  INTEGER NOT NULL DEFAULT 0,
	changed_by  TEXT    NOT NULL DEFAULT '',
	changed_why TEXT    NOT NULL DEFAULT '',
	PRIMARY KEY (service, name, cause)
) WITHOUT ROWID;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('policies', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
