ALTER TABLE toy_counters ADD COLUMN IF NOT EXISTS changed_at bigint;
INSERT INTO spillway_schema VALUES ('counters', 2, 0) ON CONFLICT DO NOTHING;
