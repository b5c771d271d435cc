ALTER TABLE spillway_keys ADD COLUMN fingerprint VARBINARY(32);

ALTER TABLE spillway_keys ADD COLUMN version BIGINT;

ALTER TABLE spillway_keys ADD COLUMN fence BIGINT;

ALTER TABLE spillway_keys ADD COLUMN expires_at BIGINT;

ALTER TABLE spillway_keys ADD COLUMN nonce BIGINT;

CREATE INDEX spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;

ALTER TABLE spillway_dead_letters ADD COLUMN service VARBINARY(255) NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD COLUMN cause VARBINARY(64) NOT NULL DEFAULT '';

ALTER TABLE spillway_dead_letters ADD COLUMN size BIGINT NOT NULL DEFAULT -1;

ALTER TABLE spillway_dead_letters ADD COLUMN arrived_redrive_id VARBINARY(255) NOT NULL DEFAULT '';

CREATE INDEX spillway_dead_letters_service ON spillway_dead_letters (service, status, seq);

CREATE INDEX spillway_dead_letters_cause ON spillway_dead_letters (cause, seq);

UPDATE spillway_dead_letters SET status = 'waiting' WHERE status = 'refused';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
