package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V10, V14: the command lists the policies of a service, freezes and thaws one or all, and releases a cause that
// is blocked. Each has a reason, and is on record.
func TestPolicies(t *testing.T) { bothWays(t, incident(), testPolicies) }

func testPolicies(t *testing.T, s *shop) {
	if r := s.pipe("policies"); r.code == 0 && !s.api {
		t.Errorf("without the table: %+v", r)
	}
	policy := func(name, reason string) campaigns.Policy {
		return campaigns.Policy{Name: name, Filter: letters.Filter{Reasons: []string{reason}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}
	}
	store := storeOn(t, s.db)
	testkit.Must(campaigns.New(t.Context(), store, campaigns.Config{Policies: []campaigns.Policy{policy("timeouts", "timeout"), policy("away", "unavailable")}}))
	testkit.Must(s.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'timeouts', '9f3a12bc00', 1, 1, 'spillway', 'of the redrive 7, 5 of 5 letters failed again'), (?, 'timeouts', '9f3a7777', 1, 1, 'spillway', 'x')`,
		[]byte("shop"), []byte("shop")))
	list := func(args ...string) (all []inside.Policy) {
		for line := range strings.Lines(s.pipe(append([]string{"policies", "--json"}, args...)...).out) {
			var p inside.Policy
			testkit.NoError(t, json.Unmarshal([]byte(line), &p))
			all = append(all, p)
		}
		return all
	}
	all := list()
	testkit.Require(t, len(all) == 2 && all[1].Name == "timeouts" && len(all[1].Blocked) == 2 && strings.Contains(all[1].Rule, "reason timeout"), "%+v", all)
	out := s.terminal(160, "", "policies", "show", "timeouts", "--color", "never").out
	testkit.Check(t, strings.Contains(out, "blocked") && strings.Contains(out, "5 of 5 letters failed again"), "%s", out)
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{2, "reason", []string{"freeze"}},
		{0, "all policies of shop: frozen\n", []string{"freeze", "--reason", "INC-7"}},
		{0, "all policies of shop: frozen, as before\n", []string{"freeze", "--reason", "INC-7"}},
		{0, "the policy away of shop: frozen\n", []string{"freeze", "away", "--reason", "INC-7"}},
		{0, "all policies of shop: thawed\n", []string{"thaw", "--reason", "INC-7"}},
		{0, `"state":"thawed","changed":true`, []string{"thaw", "away", "--reason", "INC-7", "--json"}},
		{3, "here is no such policy", []string{"thaw", "other", "--reason", "INC-7"}},
		{2, "several", []string{"release", "timeouts", "9f3a", "--reason", "INC-7"}},
		{0, "the policy timeouts, cause 9f3a12bc of shop: released\n", []string{"release", "timeouts", "9f3a12", "--reason", "INC-7: repaired"}},
		{3, "here is no such policy", []string{"release", "timeouts", "9f3a12", "--reason", "INC-7"}},
		{3, "no policy \"other\"", []string{"show", "other"}},
	} {
		r := s.pipe(append([]string{"policies"}, row.args...)...)
		testkit.Check(t, r.code == row.code && strings.Contains(r.out+r.err, row.says), "%v: %+v", row.args, r)
	}
	testkit.Check(t, len(list("list")[1].Blocked) == 1, "%+v", list())
	record := s.pipe("audit", "--kind", "policy", "--json").out
	testkit.Check(t, strings.Count(record, "\n") == 5 && strings.Contains(record, "released: the policy timeouts, cause 9f3a12bc00"), "%s", record)
}
