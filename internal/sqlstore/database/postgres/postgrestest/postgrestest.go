// Package postgrestest gives each test a schema of its own in the PostgreSQL that tests use.
package postgrestest

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Schema makes an empty schema, which goes with the test, and returns the address of a database in which it is the
// search path. Without a server the test is skipped.
func Schema(t testing.TB) string {
	t.Helper()
	address, err := url.Parse(services.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	name := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	admin, err := sql.Open("pgx", address.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(`CREATE SCHEMA ` + name); err != nil {
		_ = admin.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.New("not dropped")
		// the server may not have noticed yet that a connection is gone
		for attempt := 1; attempt <= 5 && err != nil; attempt++ {
			_, err = admin.Exec(`DROP SCHEMA IF EXISTS ` + name + ` CASCADE`)
			if err != nil && !postgres.Undone(err) {
				break
			}
		}
		if err := errors.Join(err, admin.Close()); err != nil {
			t.Error(err)
		}
	})
	query := address.Query()
	query.Set("search_path", name)
	address.RawQuery = query.Encode()
	return address.String()
}

// Open opens a pool of a moderate size, as a process of its own would.
func Open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Kill ends the server process of a connection, whose next statement then fails. db must have another one.
func Kill(t testing.TB, db *sql.DB, process int) {
	t.Helper()
	var killed bool
	if err := db.QueryRow(`SELECT pg_terminate_backend($1, 5000)`, process).Scan(&killed); err != nil || !killed {
		t.Errorf("process %d is not ended: %v, %v", process, killed, err)
	}
}
