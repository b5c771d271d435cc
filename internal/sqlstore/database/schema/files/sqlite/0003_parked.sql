-- Messages that wait in the order of their key.

-- A message a row. source is the hash of service, group (members), topic and partition (part). lane is the key, or what
-- stands for a long one. The rows of a lane are in the order of seq. position and fingerprint say which message of the
-- source it is. due_at is microseconds since 1970. consumer and key_id are the message's key in spillway_keys, which a
-- purge leaves alone. bytes is what the message counts of a limit. decision is what a person decided: 1 release, 2
-- skip, 3 discard. The owner of the source carries it out.
CREATE TABLE IF NOT EXISTS spillway_parked (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	service     BLOB NOT NULL,
	members     BLOB NOT NULL,
	topic       BLOB NOT NULL,
	part        INTEGER NOT NULL,
	source      BLOB NOT NULL,
	lane        BLOB NOT NULL,
	position    INTEGER NOT NULL,
	fingerprint BLOB NOT NULL,
	redrives    INTEGER NOT NULL,
	due_at      INTEGER NOT NULL,
	held        INTEGER NOT NULL DEFAULT 0,
	sent_at     INTEGER NOT NULL,
	consumer    TEXT NOT NULL,
	key_id      TEXT NOT NULL,
	record_key  BLOB,
	id          BLOB NOT NULL,
	metadata    BLOB NOT NULL,
	payload     BLOB,
	bytes       INTEGER NOT NULL,
	decision    INTEGER NOT NULL DEFAULT 0,
	decided_at  INTEGER NOT NULL DEFAULT 0,
	decided_by  BLOB NOT NULL DEFAULT x'',
	decided_why BLOB NOT NULL DEFAULT x''
);

CREATE UNIQUE INDEX IF NOT EXISTS spillway_parked_message ON spillway_parked (source, position, fingerprint);
CREATE INDEX IF NOT EXISTS spillway_parked_lane ON spillway_parked (source, lane, seq);
CREATE INDEX IF NOT EXISTS spillway_parked_decided ON spillway_parked (source) WHERE decision > 0;
CREATE INDEX IF NOT EXISTS spillway_parked_key ON spillway_parked (consumer, key_id);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('parked', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
