-- The numbers of dead letters by cause, version 3: letters that were erased.
--
-- Adding the column takes an instant, however large the table is.

ALTER TABLE spillway_letter_counts ADD COLUMN erased BIGINT NOT NULL DEFAULT 0;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
