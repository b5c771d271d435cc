-- The columns of the key compare by their bytes, whatever the database's collation is: an upgrade of the operating system's
-- collations cannot spoil their index.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL,
	outputs    bytea,
	applied_at bigint NOT NULL,
	PRIMARY KEY (consumer, id)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
