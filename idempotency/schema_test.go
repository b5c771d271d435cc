package idempotency_test

import (
	"fmt"
	"io/fs"
	"log"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/idempotency"
)

// The files can be handed to a migration tool, or printed for whoever keeps the database.
func ExampleSchema() {
	files, err := fs.Glob(idempotency.Schema(), "postgres/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(idempotency.Schema(), name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, strings.Count(string(text), "CREATE TABLE"), "tables")
	}
	// Output:
	// postgres/0001_versions.sql 1 tables
	// postgres/0002_keys.sql 1 tables
	// postgres/0003_leases.sql 0 tables
	// postgres/0004_letters.sql 1 tables
	// postgres/0005_causes.sql 0 tables
	// postgres/0006_delayed.sql 1 tables
	// postgres/0007_processes.sql 1 tables
	// postgres/0008_deliveries.sql 1 tables
}

// Feature I1: a store finds what the files made, and makes the same.
func TestSchema(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "test.db"))
	for _, name := range []string{"sqlite/0001_versions.sql", "sqlite/0002_keys.sql", "sqlite/0003_leases.sql"} {
		text, err := fs.ReadFile(idempotency.Schema(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	version := func() (n int) {
		if err := db.QueryRow(`PRAGMA schema_version`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := version()
	if err := idempotency.SQLite(db).Initialize(t.Context()); err != nil || version() != before {
		t.Errorf("%v: version %d is now %d", err, before, version())
	}
}
