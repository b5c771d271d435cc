package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

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
