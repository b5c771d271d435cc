-- Notices that instances share.

-- An episode a row: what is reported of one subject, until a window goes by without a report. telling is what an
-- instance is about to tell, under a lease. Kinds that begin with a dot count, and tell nothing. Times are microseconds
-- since 1970.
CREATE TABLE IF NOT EXISTS spillway_notices (
	service      TEXT NOT NULL,
	kind         TEXT NOT NULL,
	subject      TEXT NOT NULL,
	opened_at    INTEGER NOT NULL,
	ends_at      INTEGER NOT NULL,
	total        INTEGER NOT NULL,
	untold       INTEGER NOT NULL,
	first_at     INTEGER NOT NULL,
	last_at      INTEGER NOT NULL,
	about        TEXT NOT NULL,
	telling      TEXT NOT NULL,
	said         INTEGER NOT NULL,
	number       INTEGER NOT NULL,
	holder       TEXT NOT NULL,
	leased_until INTEGER NOT NULL,
	tries        INTEGER NOT NULL,
	PRIMARY KEY (service, kind, subject)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('notices', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
