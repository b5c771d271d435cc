-- Spillway, the table of keys, version 1, for PostgreSQL 11 or later.
--
-- Run these files in the order of their names, each in a transaction, with the search_path that your programs have and
-- where they will find the table. What has run can run again. Spillway runs the same files when a store is initialized,
-- and then does nothing that is done already. A statement ends with a semicolon at the end of a line, a comment has its
-- lines to itself: so the files can be split where statements must come one by one.

CREATE TABLE IF NOT EXISTS spillway_schema (
	component  text   NOT NULL,
	version    bigint NOT NULL,
	applied_at bigint NOT NULL,
	PRIMARY KEY (component, version)
);

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
