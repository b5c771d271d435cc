package redrive

import (
	"embed"
	"io/fs"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

//go:embed schema
var embedded embed.FS

// Schema returns the SQL that makes the table of a Store, in the folders sqlite, postgres and mysql, for those who create
// their tables by hand. NewStore runs the same files, and does nothing where all of them have run.
func Schema() fs.FS {
	files, err := fs.Sub(embedded, "schema")
	if err != nil {
		panic(err) // the name is a valid one
	}
	return files
}

func versions(dir string) schema.Versions {
	return schema.Read(Schema(), dir, "letters", "spillway_dead_letters", []string{"seq"},
		[]string{
			"seq", "identity", "dead_letter_topic", "id", "metadata", "payload",
			"origin_topic", "handler", "class", "reason", "type", "stack_hash", "description", "first_failed_at", "last_failed_at",
			"status", "seen", "stored_at", "token", "leased_until", "marked_at", "marked_by", "marked_why", "redrive_id",
		},
		[]string{"service", "cause", "size", "arrived_redrive_id"})
}
