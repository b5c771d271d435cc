-- The table of dead letters, version 4: a view for people.

-- Letters as people read them: texts are cut, times are in UTC, and there are no payloads and no metadata. What is not UTF-8 is
-- hexadecimal. Controls, which could deceive a terminal, become question marks. The role that makes a view needs CREATE VIEW.
CREATE OR REPLACE VIEW spillway_letters_text AS
SELECT seq,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(service USING utf8mb4) AS BINARY) = service THEN CONVERT(service USING utf8mb4) END, HEX(service)), '[[:cntrl:]]', '?'), 255) AS service,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(id USING utf8mb4) AS BINARY) = id THEN CONVERT(id USING utf8mb4) END, HEX(id)), '[[:cntrl:]]', '?'), 255) AS message_id,
	CONVERT(status USING utf8mb4) AS status,
	CONVERT(cause USING utf8mb4) AS cause,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(dead_letter_topic USING utf8mb4) AS BINARY) = dead_letter_topic THEN CONVERT(dead_letter_topic USING utf8mb4) END, HEX(dead_letter_topic)), '[[:cntrl:]]', '?'), 255) AS dead_letter_topic,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(origin_topic USING utf8mb4) AS BINARY) = origin_topic THEN CONVERT(origin_topic USING utf8mb4) END, HEX(origin_topic)), '[[:cntrl:]]', '?'), 255) AS topic,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(handler USING utf8mb4) AS BINARY) = handler THEN CONVERT(handler USING utf8mb4) END, HEX(handler)), '[[:cntrl:]]', '?'), 255) AS handler,
	CONVERT(class USING utf8mb4) AS class,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(reason USING utf8mb4) AS BINARY) = reason THEN CONVERT(reason USING utf8mb4) END, HEX(reason)), '[[:cntrl:]]', '?'), 255) AS reason,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(type USING utf8mb4) AS BINARY) = type THEN CONVERT(type USING utf8mb4) END, HEX(type)), '[[:cntrl:]]', '?'), 255) AS type,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(stack_hash USING utf8mb4) AS BINARY) = stack_hash THEN CONVERT(stack_hash USING utf8mb4) END, HEX(stack_hash)), '[[:cntrl:]]', '?'), 255) AS stack_hash,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(description USING utf8mb4) AS BINARY) = description THEN CONVERT(description USING utf8mb4) END, HEX(description)), '[[:cntrl:]]', '?'), 1000) AS description,
	TIMESTAMPADD(MICROSECOND, NULLIF(first_failed_at, 0), '1970-01-01 00:00:00.000000') AS first_failed_at,
	TIMESTAMPADD(MICROSECOND, NULLIF(last_failed_at, 0), '1970-01-01 00:00:00.000000') AS last_failed_at,
	TIMESTAMPADD(MICROSECOND, NULLIF(stored_at, 0), '1970-01-01 00:00:00.000000') AS stored_at,
	seen,
	size,
	TIMESTAMPADD(MICROSECOND, NULLIF(marked_at, 0), '1970-01-01 00:00:00.000000') AS marked_at,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(marked_by USING utf8mb4) AS BINARY) = marked_by THEN CONVERT(marked_by USING utf8mb4) END, HEX(marked_by)), '[[:cntrl:]]', '?'), 255) AS marked_by,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(marked_why USING utf8mb4) AS BINARY) = marked_why THEN CONVERT(marked_why USING utf8mb4) END, HEX(marked_why)), '[[:cntrl:]]', '?'), 255) AS marked_why,
	LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(redrive_id USING utf8mb4) AS BINARY) = redrive_id THEN CONVERT(redrive_id USING utf8mb4) END, HEX(redrive_id)), '[[:cntrl:]]', '?'), 255) AS redrive_id,
	CASE WHEN leased_until > 0 THEN LEFT(REGEXP_REPLACE(COALESCE(CASE WHEN CAST(CONVERT(leased_by USING utf8mb4) AS BINARY) = leased_by THEN CONVERT(leased_by USING utf8mb4) END, HEX(leased_by)), '[[:cntrl:]]', '?'), 255) END AS leased_by,
	TIMESTAMPADD(MICROSECOND, NULLIF(leased_until, 0), '1970-01-01 00:00:00.000000') AS leased_until
FROM spillway_dead_letters;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 4, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE version = spillway_schema.version;
