package spillway

import (
	"io/fs"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Schema returns the SQL that makes all tables of Spillway, in the folders postgres, mysql (for MariaDB too) and
// sqlite. Run the files of one folder in the order of their names, with a migration tool or by hand, if the role of
// your programs may not create tables. Each file records its version in the table spillway_schema. A store then finds
// its table, and creates nothing.
//
// Otherwise you need none of them: each store creates its table, or upgrades the table of an earlier release with its
// rows. Versions go forward only: a store refuses a table that a later release has upgraded. Files of later releases
// have higher numbers. An upgrade of a large table is better made by hand, as its file says.
func Schema() fs.FS { return schema.Files() }
