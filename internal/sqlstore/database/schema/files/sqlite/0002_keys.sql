-- Which messages were applied.

-- A key a row: a message that was applied, or is being applied under a lease. fingerprint is the SHA-256 of the
-- payload, version the business version of the key, fence the fencing token of a lease, and expires_at the end of the
-- lease in milliseconds since 1970 by the database's clock: NULL for a key that is applied. nonce is a random number of
-- the transaction that applied the key, by which it knows its own row. A key with settled_source was dead-lettered,
-- discarded or skipped in a sequence: its message had no effect. Deliveries of this source, up to this position and
-- this count of redrives, are absorbed. expires_at is 0 then.
-- The table has row ids on purpose: without them recorded outputs would lie in the index of the keys and make it deep.
-- With outputs of 1 KiB that cost half as much again a message, and saved a tenth without any.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer         TEXT NOT NULL,
	id               TEXT NOT NULL,
	outputs          BLOB,
	applied_at       INTEGER NOT NULL,
	fingerprint      BLOB,
	version          INTEGER,
	fence            INTEGER,
	expires_at       INTEGER,
	nonce            INTEGER,
	settled_source   BLOB,
	settled_position INTEGER,
	settled_redrives INTEGER,
	PRIMARY KEY (consumer, id)
);

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
