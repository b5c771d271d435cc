-- Answers that instances share.

-- What one instance asked the database, for all instances: turn_at is when an instance took its turn to ask, and
-- answered_at the turn of the answer, or 0. Times are microseconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS spillway_answers (
	service     text COLLATE "C" NOT NULL,
	name        text COLLATE "C" NOT NULL,
	turn_at     bigint NOT NULL,
	answered_at bigint NOT NULL,
	answer      bytea NOT NULL,
	PRIMARY KEY (service, name)
) WITH (fillfactor = 50);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('answers', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
