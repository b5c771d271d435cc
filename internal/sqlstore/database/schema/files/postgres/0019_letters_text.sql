-- The table of dead letters, version 4: a view for people.

-- The text in bytes that came with a message: as it is if it is UTF-8, and otherwise with escapes such as \377. Controls and marks
-- of direction, which could deceive a terminal, become question marks.
CREATE OR REPLACE FUNCTION spillway_text(bytes bytea) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
SELECT CASE WHEN current_setting('server_encoding') = 'UTF8' AND encode(bytes, 'hex') ~ '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|(?:e0[ab][0-9a-f]|e[1-9abcef][89ab][0-9a-f]|ed[89][0-9a-f])[89ab][0-9a-f]|(?:f0[9ab][0-9a-f]|f[123][89ab][0-9a-f]|f48[0-9a-f])(?:[89ab][0-9a-f]){2})*$'
	THEN regexp_replace(convert_from(bytes, 'UTF8'), '[\u0001-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]', '?', 'g')
	ELSE regexp_replace(encode(bytes, 'escape'), '[\x01-\x1f\x7f]', '?', 'g') END
$$;

-- Letters as people read them: texts are cut, times are in UTC, and there are no payloads and no metadata.
CREATE OR REPLACE VIEW spillway_letters_text AS
SELECT seq,
	left(spillway_text(service), 255) AS service,
	left(spillway_text(id), 255) AS message_id,
	status,
	cause,
	left(spillway_text(dead_letter_topic), 255) AS dead_letter_topic,
	left(spillway_text(origin_topic), 255) AS topic,
	left(spillway_text(handler), 255) AS handler,
	class,
	left(spillway_text(reason), 255) AS reason,
	left(spillway_text(type), 255) AS type,
	left(spillway_text(stack_hash), 255) AS stack_hash,
	left(spillway_text(description), 1000) AS description,
	to_timestamp(NULLIF(first_failed_at, 0) / 1000000.0) AT TIME ZONE 'UTC' AS first_failed_at,
	to_timestamp(NULLIF(last_failed_at, 0) / 1000000.0) AT TIME ZONE 'UTC' AS last_failed_at,
	to_timestamp(NULLIF(stored_at, 0) / 1000000.0) AT TIME ZONE 'UTC' AS stored_at,
	seen,
	size,
	to_timestamp(NULLIF(marked_at, 0) / 1000000.0) AT TIME ZONE 'UTC' AS marked_at,
	left(spillway_text(marked_by), 255) AS marked_by,
	left(spillway_text(convert_to(marked_why, 'UTF8')), 255) AS marked_why,
	left(spillway_text(convert_to(redrive_id, 'UTF8')), 255) AS redrive_id,
	CASE WHEN leased_until > 0 THEN left(spillway_text(leased_by), 255) END AS leased_by,
	to_timestamp(NULLIF(leased_until, 0) / 1000000.0) AT TIME ZONE 'UTC' AS leased_until
FROM spillway_dead_letters;

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letters', 4, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
