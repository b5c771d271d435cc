-- The numbers of dead letters by cause, version 2: arrivals of the last hour.
--
-- Adding the column takes an instant, however large the table is.

-- recent: the minutes before the last one with an arrival, the latest first, each as the minute modulo 1,000, a colon, the
-- number of arrivals and a space. No minute is more than 60 before the one in front of it.
ALTER TABLE spillway_letter_counts ADD COLUMN recent VARBINARY(1000) NOT NULL DEFAULT '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_counts', 2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
