-- The table of dead letters, version 4: a view for people.

-- Letters as people read them: texts are cut, times are in UTC, and there are no payloads and no metadata. Controls with which a
-- text could deceive a terminal become question marks. SQLite does not look whether a text is UTF-8.
CREATE VIEW IF NOT EXISTS spillway_letters_text AS
SELECT seq,
	substr(replace(replace(replace(replace(replace(CAST(service AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS service,
	substr(replace(replace(replace(replace(replace(CAST(id AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS message_id,
	status,
	cause,
	substr(replace(replace(replace(replace(replace(CAST(dead_letter_topic AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS dead_letter_topic,
	substr(replace(replace(replace(replace(replace(CAST(origin_topic AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS topic,
	substr(replace(replace(replace(replace(replace(CAST(handler AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS handler,
	class,
	substr(replace(replace(replace(replace(replace(CAST(reason AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS reason,
	substr(replace(replace(replace(replace(replace(CAST(type AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS type,
	substr(replace(replace(replace(replace(replace(CAST(stack_hash AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS stack_hash,
	substr(replace(replace(replace(replace(replace(CAST(description AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 1000) AS description,
	strftime('%Y-%m-%d %H:%M:%f', NULLIF(first_failed_at, 0) / 1000000.0, 'unixepoch') AS first_failed_at,
	strftime('%Y-%m-%d %H:%M:%f', NULLIF(last_failed_at, 0) / 1000000.0, 'unixepoch') AS last_failed_at,
	strftime('%Y-%m-%d %H:%M:%f', NULLIF(stored_at, 0) / 1000000.0, 'unixepoch') AS stored_at,
	seen,
	size,
	strftime('%Y-%m-%d %H:%M:%f', NULLIF(marked_at, 0) / 1000000.0, 'unixepoch') AS marked_at,
	substr(replace(replace(replace(replace(replace(CAST(marked_by AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS marked_by,
	substr(replace(replace(replace(replace(replace(CAST(marked_why AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS marked_why,
	substr(replace(replace(replace(replace(replace(CAST(redrive_id AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) AS redrive_id,
	CASE WHEN leased_until > 0 THEN substr(replace(replace(replace(replace(replace(CAST(leased_by AS TEXT), char(8), '?'), char(10), '?'), char(13), '?'), char(27), '?'), char(155), '?'), 1, 255) END AS leased_by,
	strftime('%Y-%m-%d %H:%M:%f', NULLIF(leased_until, 0) / 1000000.0, 'unixepoch') AS leased_until
FROM spillway_dead_letters;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 4, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ON CONFLICT DO NOTHING;
