package idempotency_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

// A store on a database of another kind says which store it wants.
func TestWrongKindOfDatabase(t *testing.T) {
	file, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "keys.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	databases := map[string]*sql.DB{
		"SQLite": file, "Postgres": postgrestest.Open(t, postgrestest.Schema(t)), "MySQL": mysqltest.Open(t, mysqltest.Database(t)),
	}
	for kind, db := range databases {
		for name, store := range map[string]idempotency.Store{
			"SQLite": idempotency.SQLite(db), "Postgres": idempotency.Postgres(db), "MySQL": idempotency.MySQL(db),
		} {
			err := store.Initialize(t.Context())
			if name == kind {
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), "is no "+name+": give idempotency."+kind+"(db)") {
				t.Errorf("%s on %s: %v", name, kind, err)
			}
		}
	}
}
