package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// alsoOf gives the shop's table a letter of another service.
func (s *shop) alsoOf(service string) {
	s.t.Helper()
	store, err := letters.NewStore(s.t.Context(), s.db, settings.Shared{Service: service})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := store.Publish("orders.dlq", letter("of-"+service, "{}")); err != nil {
		s.t.Fatal(err)
	}
}

// Promise P6: of services that have one table, each finds its own letters, and a name that is misspelt finds the names
// that there are.
func TestServicesOfOneTable(t *testing.T) {
	for _, d := range databases.All {
		t.Run(d.Name, func(t *testing.T) {
			s := shopOn(t, d, d.Create(t), letter("of-shop", "{}"))
			names := []string{"billing", "zoo"}
			if d.Name == databases.SQLite.Name { // a file can have letters of no service
				names = append(names, "")
			}
			for _, name := range names {
				s.alsoOf(name)
			}
			for _, name := range append(names, "shop") {
				listed := s.pipe("list", "--service", name)
				if listed.code != 0 || strings.Count(listed.out, "\n") != 1 || !strings.Contains(listed.out, "\tof-"+name+"\t") {
					t.Errorf("--service %s: exit %d: %s%s", name, listed.code, listed.out, listed.err)
				}
			}
			if got := s.pipe("list", "--service", "shpo"); got.code != 3 || !strings.Contains(got.err, "these services have: billing, shop, zoo\n") {
				t.Errorf("a misspelt name: exit %d: %s", got.code, got.err)
			}
			if got := s.pipe("discard", "--service", "zoo", "--all", "--reason", "closed", "--yes"); got.code != 0 || !strings.Contains(got.out, "discarded 1 letter") {
				t.Errorf("discard: exit %d: %s%s", got.code, got.out, got.err)
			}
		})
	}
}
