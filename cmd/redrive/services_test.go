package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Promise P6: of services that have one table, each finds its own letters, and a name that is misspelt finds the names
// that there are. A file of SQLite can have letters of no service.
func TestServicesOfOneTable(t *testing.T) {
	s := newShop(t, letter("of-shop", "{}"))
	for _, name := range []string{"billing", "zoo", ""} {
		store, err := letters.NewStore(t.Context(), s.db, settings.Shared{Service: name})
		if err == nil {
			err = store.Publish("orders.dlq", letter("of-"+name, "{}"))
		}
		testkit.NoError(t, err)
	}
	for _, name := range []string{"billing", "zoo", "", "shop"} {
		listed := s.pipe("list", "--service", name)
		if listed.code != 0 || strings.Count(listed.out, "\n") != 1 || !strings.Contains(listed.out, "\tof-"+name+"\t") {
			t.Errorf("--service %s: exit %d: %s%s", name, listed.code, listed.out, listed.err)
		}
	}
	s.steps([]step{
		{3, "these services have: billing, shop, zoo\n", []string{"list", "--service", "shpo"}},
		{0, "discarded 1 letter", []string{"discard", "--service", "zoo", "--all", "--reason", "closed", "--yes"}},
	})
}

// Promise P6: behind a pooler in transaction mode, the command lists letters each time, with an address that says
// nothing of it.
func TestPooler(t *testing.T) {
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), letter("of-shop", "{}"))
	s.env = append(s.env, "SPILLWAY_DB="+services.PgBouncer(t, s.url, "pool_mode = transaction"))
	for range 6 {
		if got := s.pipe("list"); got.code != 0 || !strings.Contains(got.out, "of-shop") {
			t.Errorf("exit %d: %s%s", got.code, got.out, got.err)
		}
	}
}
