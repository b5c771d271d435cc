package database_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P1: a database that cannot be asked is an error with the remedy of what is wrong, and not of something else.
func TestDetectSaysTheRemedy(t *testing.T) {
	const elsewhere = "see that it answers at the address"
	says := func(name string, err error, remedy string) {
		t.Helper()
		testkit.Check(t, err != nil && strings.Contains(err.Error(), remedy) && !strings.Contains(err.Error(), elsewhere),
			"%s: %v", name, err)
	}
	file := testkit.Must(sql.Open("sqlite", "file:"+t.TempDir()+"/no/such/folder.db"))
	t.Cleanup(func() { _ = file.Close() })
	says("a folder that is not there", testkit.Err(database.Detect(t.Context(), file)), "the folder of the file")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	err := testkit.Err(database.Detect(cancelled, file))
	says("a cancelled context", err, "context canceled")
	testkit.Check(t, errors.Is(err, context.Canceled), "%v", err)

	closed := testkit.Must(sql.Open("sqlite", "file:"+t.TempDir()+"/closed.db"))
	testkit.NoError(t, closed.Close())
	says("a pool that is closed", testkit.Err(database.Detect(t.Context(), closed)), "before it is closed")

	address := postgrestest.Schema(t)
	password := strings.Replace(address, "spillway:spillway@", "spillway:wrong@", 1)
	says("a wrong password", testkit.Err(database.Detect(t.Context(), postgrestest.Open(t, password))), "the password")
	name := strings.Replace(address, "/spillway?", "/nowhere?", 1)
	says("a wrong name", testkit.Err(database.Detect(t.Context(), postgrestest.Open(t, name))), "no database of this name")
}
