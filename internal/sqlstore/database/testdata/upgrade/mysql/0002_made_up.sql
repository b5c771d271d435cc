
ALTER TABLE spillway_keys ADD COLUMN fingerprint VARBINARY(32);

ALTER TABLE spillway_keys ADD COLUMN version BIGINT;

ALTER TABLE spillway_keys ADD COLUMN fence BIGINT;

ALTER TABLE spillway_keys ADD COLUMN expires_at BIGINT;

ALTER TABLE spillway_keys ADD COLUMN nonce BIGINT;

CREATE INDEX spillway_keys_applied_at ON spillway_keys (applied_at);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
