package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V11, V14: the page of campaigns has the standing policies, with what keeps each from redriving. One button
// freezes or thaws all, or one, and another releases a cause, each with a reason, which the record has.
func TestPolicies(t *testing.T) {
	b := newBench(t)
	without := func(text string, change ...func(*http.Request)) {
		t.Helper()
		testkit.Check(t, !strings.Contains(b.get("/campaigns", change...).body, text), "the page has %q", text)
	}
	without("Standing policies")
	b.standing()
	b.get("/campaigns").want(t, 200, "Standing policies", "&lt;b&gt;timeout", "5 of 5 letters failed again", "blocked", "Freeze all policies",
		`action="./policies/timeouts/9f3a12bc00aabb/release"`)
	b.get("/campaigns", as(Look)).want(t, 200, "Standing policies")
	without("Freeze all policies", as(Look))
	for _, step := range []struct {
		path   string
		status int
		says   string
	}{
		{"freeze", 303, "Thaw all policies"}, {"freeze", 303, "All policies are frozen by "}, {"thaw", 303, "Freeze all policies"},
		{"timeouts/freeze", 303, "Thaw the policy timeouts"}, {"timeouts/thaw", 303, "Freeze the policy timeouts"},
		{"other/freeze", 404, ""}, {"timeouts/9f3a/release", 303, "Freeze the policy timeouts"}, {"timeouts/9f3a/release", 404, ""},
	} {
		b.post("/policies/"+step.path, nil).want(t, 400, "The reason is empty")
		b.post("/policies/"+step.path, reason).want(t, step.status)
		b.get("/campaigns").want(t, 200, step.says)
	}
	without("5 of 5 letters")
	record := testkit.Must(b.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventPolicy}}))
	testkit.Check(t, len(record) == 5 && strings.HasPrefix(record[4].Detail, "released: ") && record[0].Reason == "INC-7", "%+v", record)
}

// standing has a policy, for which a cause is blocked.
func (b *bench) standing() {
	testkit.Must(campaigns.New(b.t.Context(), b.store, campaigns.Config{Policies: []campaigns.Policy{{Name: "timeouts",
		Filter: letters.Filter{Reasons: []string{"<b>timeout"}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}}}))
	testkit.Must(b.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'timeouts', '9f3a12bc00aabb', 1, 1, 'spillway', '5 of 5 letters failed again')`, []byte(b.store.Inside().Service())))
}
