-- The bodies of dead letters, version 1.

-- The metadata and the payload of a letter, apart from what lists read. body is the seq that the letter was stored with. The
-- letters of earlier versions have their metadata and payload in spillway_dead_letters, and keep them there.
CREATE TABLE IF NOT EXISTS spillway_letter_bodies (
	body            bigint PRIMARY KEY,
	letter_metadata bytea NOT NULL,
	letter_payload  bytea
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_bodies', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
