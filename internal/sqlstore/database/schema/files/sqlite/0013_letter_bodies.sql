-- The bodies of dead letters, version 1.

-- The metadata and the payload of a letter, apart from what lists read. body is the seq that the letter was stored with. The
-- letters of earlier versions have their metadata and payload in spillway_dead_letters, and keep them there.
CREATE TABLE IF NOT EXISTS spillway_letter_bodies (
	body            INTEGER PRIMARY KEY,
	letter_metadata BLOB NOT NULL,
	letter_payload  BLOB
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_bodies', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
