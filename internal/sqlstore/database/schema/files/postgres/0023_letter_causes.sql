-- The causes of dead letters, version 2: no descriptions.
--
-- A description can name a person, and a cause outlives its letters. Descriptions are in the rows of the letters alone.

UPDATE spillway_letter_causes SET description = '' WHERE description <> '';

INSERT INTO spillway_schema (component, version, applied_at)
VALUES ('letter_causes', 2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING;
