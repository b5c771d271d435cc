package database_test

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// A server that only reads is refused at the start. make test-clusters does so with a standby.
func TestRequirePrimary(t *testing.T) {
	address := postgrestest.Schema(t)
	testkit.NoError(t, database.RequirePrimary(t.Context(), postgrestest.Open(t, address)))
	testkit.Says(t, database.RequirePrimary(t.Context(), postgrestest.Open(t, address+"&default_transaction_read_only=on")), "standby")
}
