-- The numbers of dead letters by cause, version 1.

-- How many letters of a cause have each status, and how many arrived ever, and of late. A number is the sum over the slots:
-- each writer counts in a slot of its own, so that writers do not wait for each other. A number of one slot can be negative.
-- minute is the last one with an arrival, in minutes since 1970. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_counts (
	service         BLOB NOT NULL,
	cause           TEXT NOT NULL,
	slot            INTEGER NOT NULL,
	waiting         INTEGER NOT NULL,
	redriven        INTEGER NOT NULL,
	succeeded       INTEGER NOT NULL,
	failed_again    INTEGER NOT NULL,
	quarantined     INTEGER NOT NULL,
	refused         INTEGER NOT NULL,
	discarded       INTEGER NOT NULL,
	arrived         INTEGER NOT NULL,
	first_failed_at INTEGER NOT NULL,
	last_failed_at  INTEGER NOT NULL,
	last_seq        INTEGER NOT NULL,
	minute          INTEGER NOT NULL,
	in_minute       INTEGER NOT NULL,
	minute_before   INTEGER NOT NULL,
	PRIMARY KEY (service, cause, slot)
) WITHOUT ROWID;

-- The letters that are there. Programs of an earlier version do not count: end them before. This reads the whole table of
-- letters: some seconds for a million of them.
INSERT INTO spillway_letter_counts (service, cause, slot, waiting, redriven, succeeded, failed_again, quarantined, refused, discarded,
	arrived, first_failed_at, last_failed_at, last_seq, minute, in_minute, minute_before)
SELECT service, cause, -1,
	SUM(CASE WHEN status = 'waiting' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'redriven' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'succeeded' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'failed_again' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'quarantined' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'refused' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status = 'discarded' THEN 1 ELSE 0 END),
	SUM(seen), MIN(first_failed_at), MAX(last_failed_at), MAX(seq), 0, 0, 0
FROM spillway_dead_letters
WHERE cause <> '' AND NOT EXISTS (SELECT 1 FROM spillway_letter_counts)
GROUP BY service, cause;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
