-- Which messages were applied.

-- A key a row: a message that was applied, or is being applied under a lease. fingerprint is the SHA-256 of the
-- payload, version the business version of the key, fence the fencing token of a lease, and expires_at the end of the
-- lease in milliseconds since 1970 by the database's clock: NULL for a key that is applied. nonce is a random number of
-- the transaction that applied the key, by which it knows its own row. A key with settled_source was dead-lettered,
-- discarded or skipped in a sequence: its message had no effect. Deliveries of this source, up to this position and
-- this count of redrives, are absorbed. expires_at is 0 then. The columns of the key compare by their bytes, whatever
-- the database's collation is: an upgrade of the operating system's collations cannot spoil their index.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer         text COLLATE "C" NOT NULL,
	id               text COLLATE "C" NOT NULL,
	outputs          bytea,
	applied_at       bigint NOT NULL,
	fingerprint      bytea,
	version          bigint,
	fence            bigint,
	expires_at       bigint,
	nonce            bigint,
	settled_source   bytea,
	settled_position bigint,
	settled_redrives bigint,
	PRIMARY KEY (consumer, id)
);

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
