-- The causes of dead letters, version 1.

-- What the letters of one cause have in common, and the description of the first of them. A row is written with the first
-- letter of a cause, and never changed.
CREATE TABLE IF NOT EXISTS spillway_letter_causes (
	service           BLOB NOT NULL,
	cause             TEXT NOT NULL,
	dead_letter_topic BLOB NOT NULL,
	origin_topic      BLOB NOT NULL,
	handler           BLOB NOT NULL,
	class             TEXT NOT NULL,
	reason            TEXT NOT NULL,
	type              TEXT NOT NULL,
	stack_hash        TEXT NOT NULL,
	description       TEXT NOT NULL,
	PRIMARY KEY (service, cause)
) WITHOUT ROWID;

-- The causes of letters that are there. This reads the whole table of letters: some seconds for a million of them.
INSERT INTO spillway_letter_causes (service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description)
SELECT l.service, l.cause, l.dead_letter_topic, l.origin_topic, l.handler, l.class, l.reason, l.type, l.stack_hash, l.description
FROM spillway_dead_letters AS l
JOIN (SELECT MIN(seq) AS first FROM spillway_dead_letters WHERE cause <> '' GROUP BY service, cause) AS firsts ON l.seq = firsts.first
WHERE l.cause <> '' ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_causes', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
