ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fingerprint bytea;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS version bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS fence bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS expires_at bigint;

ALTER TABLE spillway_keys ADD COLUMN IF NOT EXISTS nonce bigint;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;

ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS service bytea NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS cause text NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS size bigint NOT NULL DEFAULT -1;

ALTER TABLE spillway_dead_letters ADD COLUMN IF NOT EXISTS arrived_redrive_id bytea NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

DROP INDEX IF EXISTS spillway_dead_letters_status;

UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
