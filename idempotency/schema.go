package idempotency

import (
	"io/fs"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Schema returns the SQL that makes the table spillway_keys, for those who run it with a migration tool of their own. Each
// of the folders postgres, mysql (for MariaDB too) and sqlite holds a file for each version, to be run in the order of
// their names. Versions only go forward.
//
// The stores' Initialize runs these very files, those that the database lacks. Each file records its version in the table
// spillway_schema, and what is recorded is not run again: so who runs the files first, and then a program that has no right
// to create tables, need do no more. What has run in part is completed. Initialize also upgrades a table that an earlier
// release of Spillway made, with its rows. It refuses a version which it does not know, because a later release made it.
// Programs of both releases may be at work while a table is upgraded.
//
// An upgrade of a table with many millions of keys is better made by hand: the files say which statement takes its time
// and what to run instead of it, such as CREATE INDEX CONCURRENTLY. Initialize accepts what it finds then.
func Schema() fs.FS { return schema.Files() }
