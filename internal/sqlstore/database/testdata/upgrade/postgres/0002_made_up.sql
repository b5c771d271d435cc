
ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fingerprint bytea;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS version bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fence bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS expires_at bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS nonce bigint;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
