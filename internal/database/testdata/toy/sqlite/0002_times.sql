ALTER TABLE toy_counters ADD COLUMN changed_at INTEGER;
INSERT INTO spillway_schema VALUES ('counters', 2, 0) ON CONFLICT DO NOTHING;
