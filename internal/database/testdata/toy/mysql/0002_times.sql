ALTER TABLE toy_counters ADD COLUMN changed_at BIGINT;
INSERT IGNORE INTO spillway_schema VALUES ('counters', 2, 0);
