-- Notices that instances share.

-- An episode a row: what is reported of one subject, until a window goes by without a report. telling is what an
-- instance is about to tell, under a lease. Kinds that begin with a dot count, and tell nothing. Times are microseconds
-- since 1970.
CREATE TABLE IF NOT EXISTS spillway_notices (
	service      text COLLATE "C" NOT NULL,
	kind         text COLLATE "C" NOT NULL,
	subject      text COLLATE "C" NOT NULL,
	opened_at    bigint NOT NULL,
	ends_at      bigint NOT NULL,
	total        bigint NOT NULL,
	untold       bigint NOT NULL,
	first_at     bigint NOT NULL,
	last_at      bigint NOT NULL,
	about        text NOT NULL,
	telling      text NOT NULL,
	said         bigint NOT NULL,
	number       bigint NOT NULL,
	holder       text NOT NULL,
	leased_until bigint NOT NULL,
	tries        bigint NOT NULL,
	PRIMARY KEY (service, kind, subject)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('notices', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
