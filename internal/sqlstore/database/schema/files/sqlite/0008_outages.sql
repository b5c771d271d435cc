-- Outages that instances share.

-- An outage that an instance found a row, until expires_at, which the instance moves on while it lives. A freeze by
-- hand has no instance and does not expire. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_outages (
	service    TEXT NOT NULL,
	handler    TEXT NOT NULL,
	scope      TEXT NOT NULL,
	instance   TEXT NOT NULL,
	state      TEXT NOT NULL,
	reason     TEXT NOT NULL,
	cause      TEXT NOT NULL,
	actor      TEXT NOT NULL,
	since      INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (service, handler, scope, instance)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('outages', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
