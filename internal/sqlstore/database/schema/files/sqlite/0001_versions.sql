-- Spillway's tables, for SQLite 3.35 or later.
--
-- Spillway runs these files itself when a store is opened. To run them with a tool or by hand, run them in the order of
-- their names, each in a transaction. Spillway then finds nothing to do. A file that has run can run again.
--
-- A statement ends with a semicolon at the end of a line. A comment has its lines to itself. So the files can be split
-- where statements must come one by one.

-- Which version of each table was made, and when, in milliseconds since 1970. Each of the other files makes one version
-- of its tables.
CREATE TABLE IF NOT EXISTS spillway_schema (
	component  TEXT NOT NULL,
	version    INTEGER NOT NULL,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (component, version)
);
