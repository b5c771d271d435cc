-- The table of claims on dead letters, version 1.

-- A claim of a drain or a campaign a row: the least and the greatest seq that it leased. It bounds where leased letters are
-- looked for. The letters themselves say which have a lease. leased_until is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_claims (
	token        TEXT    NOT NULL PRIMARY KEY,
	leased_until INTEGER NOT NULL,
	first_seq    INTEGER NOT NULL,
	last_seq     INTEGER NOT NULL
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_claims', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
