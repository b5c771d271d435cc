-- The table of claims on dead letters, version 1.

-- A claim of a drain or a campaign a row: the least and the greatest seq that it leased. It bounds where leased letters are
-- looked for. The letters themselves say which have a lease. leased_until is microseconds since 1970.
CREATE TABLE IF NOT EXISTS spillway_letter_claims (
	token        VARBINARY(255) NOT NULL PRIMARY KEY,
	leased_until BIGINT         NOT NULL,
	first_seq    BIGINT         NOT NULL,
	last_seq     BIGINT         NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_claims', 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
