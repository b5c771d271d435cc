-- The table of keys, version 2: fingerprints, versions, leases, and the index of the purge.
--
-- Adding the columns takes an instant, however large the table is. Making the index takes about a second for a million
-- keys. Nothing can be written to the file meanwhile.

-- SHA-256 of the payload.
ALTER TABLE spillway_keys ADD COLUMN fingerprint BLOB;

-- The business version of the key.
ALTER TABLE spillway_keys ADD COLUMN version INTEGER;

-- The fencing token of a lease.
ALTER TABLE spillway_keys ADD COLUMN fence INTEGER;

-- When a lease expires, in Unix milliseconds by the database's clock. NULL: the key is applied.
ALTER TABLE spillway_keys ADD COLUMN expires_at INTEGER;

-- A random number of the transaction that applied the key, by which it knows its own row.
ALTER TABLE spillway_keys ADD COLUMN nonce INTEGER;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
