
ALTER TABLE spillway_keys ADD COLUMN fingerprint BLOB;

ALTER TABLE spillway_keys ADD COLUMN version INTEGER;

ALTER TABLE spillway_keys ADD COLUMN fence INTEGER;

ALTER TABLE spillway_keys ADD COLUMN expires_at INTEGER;

ALTER TABLE spillway_keys ADD COLUMN nonce INTEGER;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
