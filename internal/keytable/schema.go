package keytable

import (
	"embed"
	"io/fs"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

//go:embed schema
var embedded embed.FS

// Files holds the files of SQL that make the table, in the folders postgres, mysql and sqlite.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "schema")
	if err != nil {
		panic(err) // the name is a valid one
	}
	return files
}

// Postgres, MySQL and SQLite are the versions of the table.
var (
	Postgres = versions("postgres")
	MySQL    = versions("mysql")
	SQLite   = versions("sqlite")
)

func versions(dir string) schema.Versions {
	return schema.Read(Files(), dir, "keys", "spillway_keys", []string{"consumer", "id"},
		[]string{"consumer", "id", "outputs", "applied_at"},
		[]string{"fingerprint", "version", "fence", "expires_at", "nonce"})
}
