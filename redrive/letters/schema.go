package letters

import (
	"io/fs"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Schema returns the SQL that makes the tables, in the folders sqlite, postgres and mysql, for those who create their tables
// by hand. NewStore runs the same files, and does nothing where all of them have run.
func Schema() fs.FS { return schema.Files() }

// table is the table of dead letters.
var table = schema.Table{
	Component: "letters", Name: "spillway_dead_letters", Key: []string{"seq"},
	Versions: []schema.Version{
		{File: "0004_letters.sql", Columns: []string{
			"seq", "identity", "dead_letter_topic", "id", "metadata", "payload",
			"origin_topic", "handler", "class", "reason", "type", "stack_hash", "description", "first_failed_at", "last_failed_at",
			"status", "seen", "stored_at", "token", "leased_until", "marked_at", "marked_by", "marked_why", "redrive_id",
		}},
		{File: "0005_causes.sql", Columns: []string{"service", "cause", "size", "arrived_redrive_id"}},
	},
}
