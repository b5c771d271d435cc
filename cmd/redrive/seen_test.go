package main

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// role lets the command work as a new role of PostgreSQL, which may do all with the tables.
func (s *shop) role() (name string) {
	s.t.Helper()
	address := testkit.Must(url.Parse(s.url))
	name = "seer_" + strings.ToLower(rand.Text()[:12])
	schema := address.Query().Get("search_path")
	s.exec(`CREATE ROLE `+name+` LOGIN PASSWORD 'unknown'`, `GRANT USAGE ON SCHEMA `+schema+` TO `+name,
		`GRANT ALL ON ALL TABLES IN SCHEMA `+schema+` TO `+name, `GRANT ALL ON ALL SEQUENCES IN SCHEMA `+schema+` TO `+name)
	s.t.Cleanup(func() { _, _ = s.db.Exec(`DROP OWNED BY ` + name + `; DROP ROLE ` + name) })
	address.User = url.UserPassword(name, "unknown")
	s.env = append(s.env, "SPILLWAY_DB="+address.String())
	return name
}

func (s *shop) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		testkit.Must(s.db.Exec(statement))
	}
}

// Feature V10: what row-level security hides from the role is not said to be none, and doctor finds it and missing rights.
func TestRowsThatAreHidden(t *testing.T) {
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), incident()...)
	name := s.role()
	s.pipe("doctor").wants(t, 0, "this role can look and act")
	s.exec(`ALTER TABLE spillway_dead_letters ENABLE ROW LEVEL SECURITY`)
	for _, command := range []string{"causes", "list"} {
		s.pipe(command).wants(t, 0, "row-level security may hide letters")
	}
	s.pipe("doctor").wants(t, 5, "sees only the rows of spillway_dead_letters that a policy shows")
	got := s.pipe("discard", "--handler", "billing", "--reason", "why", "--yes")
	testkit.Check(t, got.code != 0, "%d: %s", got.code, got.err)
	s.exec(`ALTER TABLE spillway_dead_letters DISABLE ROW LEVEL SECURITY`,
		`ALTER TABLE spillway_schema ENABLE ROW LEVEL SECURITY`)
	for _, command := range []string{"list", "doctor"} {
		got := s.pipe(command)
		testkit.Check(t, got.code != 0 && strings.Contains(got.out+got.err, "row-level security hides the rows") &&
			!strings.Contains(got.out+got.err, "not in this database"), "%s: %+v", command, got)
	}
	s.exec(`ALTER TABLE spillway_schema DISABLE ROW LEVEL SECURITY`,
		`REVOKE UPDATE ON spillway_letter_counts FROM `+name, `REVOKE ALL ON spillway_letter_events FROM `+name)
	s.pipe("doctor").wants(t, 5, "may read spillway_letter_counts, and change nothing", "may not read spillway_letter_events")
}
