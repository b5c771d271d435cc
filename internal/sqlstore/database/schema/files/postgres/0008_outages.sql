-- Outages that instances share.

-- An outage that an instance found a row, until expires_at, which the instance moves on while it lives. A freeze by
-- hand has no instance and does not expire. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_outages (
	service    text COLLATE "C" NOT NULL,
	handler    text COLLATE "C" NOT NULL,
	scope      text COLLATE "C" NOT NULL,
	instance   text COLLATE "C" NOT NULL,
	state      text NOT NULL,
	reason     text NOT NULL,
	cause      text NOT NULL,
	actor      text NOT NULL,
	since      bigint NOT NULL,
	expires_at bigint NOT NULL,
	PRIMARY KEY (service, handler, scope, instance)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('outages', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
