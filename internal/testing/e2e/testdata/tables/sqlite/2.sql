ALTER TABLE spillway_keys ADD COLUMN fingerprint BLOB;

ALTER TABLE spillway_keys ADD COLUMN version INTEGER;

ALTER TABLE spillway_keys ADD COLUMN fence INTEGER;

ALTER TABLE spillway_keys ADD COLUMN expires_at INTEGER;

ALTER TABLE spillway_keys ADD COLUMN nonce INTEGER;

CREATE INDEX IF NOT EXISTS spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;

ALTER TABLE spillway_dead_letters ADD COLUMN service BLOB NOT NULL DEFAULT x'';

ALTER TABLE spillway_dead_letters ADD COLUMN cause TEXT NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD COLUMN size INTEGER NOT NULL DEFAULT -1;

ALTER TABLE spillway_dead_letters ADD COLUMN arrived_redrive_id TEXT NOT NULL DEFAULT '';

CREATE INDEX IF NOT EXISTS spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX IF NOT EXISTS spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

DROP INDEX IF EXISTS spillway_dead_letters_status;

UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
