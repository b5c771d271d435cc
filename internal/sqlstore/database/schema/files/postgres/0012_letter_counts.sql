-- The numbers of dead letters by cause, version 1.

-- How many letters of a cause have each status, and how many arrived ever, and of late. A number is the sum over the slots:
-- each writer counts in a slot of its own, so that writers do not wait for each other. A number of one slot can be negative.
-- minute is the last one with an arrival, in minutes since 1970. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_counts (
	service         bytea NOT NULL,
	cause           text NOT NULL,
	slot            bigint NOT NULL,
	waiting         bigint NOT NULL,
	redriven        bigint NOT NULL,
	succeeded       bigint NOT NULL,
	failed_again    bigint NOT NULL,
	quarantined     bigint NOT NULL,
	refused         bigint NOT NULL,
	discarded       bigint NOT NULL,
	arrived         bigint NOT NULL,
	first_failed_at bigint NOT NULL,
	last_failed_at  bigint NOT NULL,
	last_seq        bigint NOT NULL,
	minute          bigint NOT NULL,
	in_minute       bigint NOT NULL,
	minute_before   bigint NOT NULL,
	PRIMARY KEY (service, cause, slot)
) WITH (fillfactor = 50);

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
VALUES ('letter_counts', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
