-- Running processes, and deliveries that did not return.

-- A running process a row, which it updates at every heartbeat. Space left in the pages keeps the updates out of the
-- index. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_processes (
	service    text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL PRIMARY KEY,
	node       text NOT NULL,
	beat_ms    bigint NOT NULL,
	started_at bigint NOT NULL,
	beats      bigint NOT NULL,
	lost_at    bigint
) WITH (fillfactor = 50);

-- A mark a row: a delivery that began while an unclean end was under suspicion, and has not ended. marked_at is
-- milliseconds since 1970.
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
VALUES ('processes', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('deliveries', 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
