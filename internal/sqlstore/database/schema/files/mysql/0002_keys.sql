-- Which messages were applied.

-- A key a row: a message that was applied, or is being applied under a lease. fingerprint is the SHA-256 of the
-- payload, version the business version of the key, fence the fencing token of a lease, and expires_at the end of the
-- lease in milliseconds since 1970 by the database's clock: NULL for a key that is applied. nonce is a random number of
-- the transaction that applied the key, by which it knows its own row. A key with settled_source was dead-lettered,
-- discarded or skipped in a sequence: its message had no effect. Deliveries of this source, up to this position and
-- this count of redrives, are absorbed. expires_at is 0 then.
-- The columns of the key compare by their bytes: text ignores trailing spaces, and as a rule case. They hold at most 255
-- bytes, and an index of InnoDB takes 3072.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer         VARBINARY(255) NOT NULL,
	id               VARBINARY(255) NOT NULL,
	outputs          LONGBLOB,
	applied_at       BIGINT NOT NULL,
	fingerprint      VARBINARY(32),
	version          BIGINT,
	fence            BIGINT,
	expires_at       BIGINT,
	nonce            BIGINT,
	settled_source   VARBINARY(32),
	settled_position BIGINT,
	settled_redrives BIGINT,
	PRIMARY KEY (consumer, id),
	INDEX spillway_keys_applied_at (applied_at)
) ENGINE=InnoDB;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
