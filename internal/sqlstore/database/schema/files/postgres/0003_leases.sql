-- The table of keys, version 2: fingerprints, versions, leases, and the index of the purge.
--
-- Adding the columns takes an instant, however large the table is: they are NULL, and no row is written. The statement waits
-- for the transactions that use the table at that moment, and all others wait behind it.
--
-- Making the index takes some seconds for a million keys. No key can be written meanwhile. In a live database with many
-- keys, make the index before this file runs, and before a new program starts, which would give up after 30 seconds. Run
-- outside of a transaction:
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);
-- This file, and Spillway, then find the index. If that statement failed, drop the index first: it stays, marked INVALID.

-- SHA-256 of the payload.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fingerprint bytea;

-- The business version of the key.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS version bigint;

-- The fencing token of a lease.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fence bigint;

-- When a lease expires, in Unix milliseconds by the database's clock. NULL: the key is applied.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS expires_at bigint;

-- A random number of the transaction that applied the key, by which it knows its own row.
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS nonce bigint;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
