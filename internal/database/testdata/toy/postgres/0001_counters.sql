CREATE TABLE IF NOT EXISTS toy_counters (name text COLLATE "C" NOT NULL PRIMARY KEY, n bigint NOT NULL);
INSERT INTO spillway_schema VALUES ('counters', 1, 0) ON CONFLICT DO NOTHING;
