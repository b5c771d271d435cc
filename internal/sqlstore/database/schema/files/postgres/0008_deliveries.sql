-- The table of unfinished deliveries, version 1.

-- A mark a row: a delivery that began while an unclean end was under suspicion, and has not ended. marked_at is milliseconds
-- since 1970.
CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service   text COLLATE "C" NOT NULL,
	consumer  text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL,
	redrives  bigint NOT NULL,
	delivery  bigint NOT NULL,
	process   text NOT NULL,
	marked_at bigint NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
);

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('deliveries', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
