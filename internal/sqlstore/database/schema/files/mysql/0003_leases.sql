-- The table of keys, version 2: fingerprints, versions, leases, and the index of the purge.
--
-- Adding the columns takes an instant, however large the table is. The statement waits for the transactions that use the
-- table at that moment, and all others wait behind it. Making the index takes some seconds for a million keys, and the
-- server lets others write meanwhile. In a live database with many keys run this file by hand before a new program starts:
-- the program would give up after 30 seconds.

-- SHA-256 of the payload.
ALTER TABLE spillway_keys ADD COLUMN fingerprint VARBINARY(32);

-- The business version of the key.
ALTER TABLE spillway_keys ADD COLUMN version BIGINT;

-- The fencing token of a lease.
ALTER TABLE spillway_keys ADD COLUMN fence BIGINT;

-- When a lease expires, in Unix milliseconds by the database's clock. NULL: the key is applied.
ALTER TABLE spillway_keys ADD COLUMN expires_at BIGINT;

-- A random number of the transaction that applied the key, by which it knows its own row.
ALTER TABLE spillway_keys ADD COLUMN nonce BIGINT;

CREATE INDEX spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
