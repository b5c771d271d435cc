-- Spillway's tables, for PostgreSQL 11 or later.
--
-- Spillway runs these files itself when a store is opened. To run them with a tool or by hand, run them in the order of
-- their names, each in a transaction, with the search_path that your programs have. Spillway then finds nothing to do, and
-- its role needs no right to create tables. A file that has run can run again.
--
-- A statement ends with a semicolon at the end of a line. A comment has its lines to itself. So the files can be split
-- where statements must come one by one.

-- Which version of each table was made, and when, in milliseconds since 1970. Each of the other files makes one version
-- of its tables.
CREATE TABLE IF NOT EXISTS spillway_schema (
	component  text NOT NULL,
	version    bigint NOT NULL,
	applied_at bigint NOT NULL,
	PRIMARY KEY (component, version)
);
