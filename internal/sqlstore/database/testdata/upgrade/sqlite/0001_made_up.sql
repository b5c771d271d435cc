-- The table has row ids on purpose: without them recorded outputs would lie in the index of the keys and make it deep. With
-- outputs of 1 KiB that cost half as much again a message, and saved a tenth without any.
CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	outputs    BLOB,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('keys', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
