package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var reason = url.Values{"reason": {"INC-7"}}

func by(name string, role Role) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Test-Name", name)
		r.Header.Set("Test-Role", roles[role])
	}
}

func (b *bench) started(r campaigns.Request) campaigns.Campaign {
	b.t.Helper()
	r.Act = campaigns.Act{By: "ann", Reason: "INC-7"}
	return testkit.Must(b.campaigns.Start(b.t.Context(), r))
}

// Feature V11: a campaign is steered with reasons, as its state allows. What was typed stays.
func TestSteer(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(5)...)
	at := "/campaigns/" + b.started(campaigns.Request{Rate: 1}).ID
	for _, step := range []struct {
		action string
		form   url.Values
		status int
		says   string
	}{
		{"pause", nil, 400, "The reason is empty"},
		{"pause", url.Values{"reason": {strings.Repeat("x", 2000)}}, 400, "it may have 1024"},
		{"resume", reason, 409, "is now: running"},
		{"approve", reason, 409, "is now: running"},
		{"pause", with(reason, "reason", `slow <b>`), 303, ""},
		{"pause", reason, 409, "is now: paused"},
		{"rate", with(reason, "rate", "fast"), 400, `value="fast"`},
		{"rate", with(reason, "rate", "-1"), 400, `value="INC-7"`},
		{"rate", with(reason, "rate", "1,200.5"), 303, ""},
		{"resume", reason, 303, ""},
		{"cancel", reason, 303, ""},
		{"cancel", reason, 409, "is now: cancelled"},
		{"rate", with(reason, "rate", "2"), 409, "is now: cancelled"},
	} {
		p := b.post(at+"/"+step.action, step.form, by("bob", Approve)).want(t, step.status, step.says)
		if step.status == 303 {
			p.goes(t, at[1:])
		}
	}
	b.get(at).want(t, http.StatusOK, "slow &lt;b&gt;", "1200.5 letters a second", "It was given up. Letters that were not redriven wait as before.", "<bdi>bob</bdi>", "data-done")
	for _, action := range []string{"pause", "resume", "rate", "cancel", "approve"} {
		at := "/campaigns/9f3a12bc/" + action
		b.post(at, only(with(reason, "rate", "1"), b.takes(at)...)).want(t, http.StatusNotFound)
	}
}

// park parks the messages of fixture.Park.
func (b *bench) park() {
	b.t.Helper()
	fixture.Park(b.t, b.db, hidden.Of(b.store).Service())
}

// Feature V11: keys whose messages wait are listed, with a help, and without keys for who may not look at messages.
func TestSequences(t *testing.T) {
	b := newBench(t)
	b.get("/sequences").want(t, http.StatusOK, "No message waits in the order of its key.", "until a person decides")
	b.get("/sequences/1").want(t, http.StatusNotFound, "handled, or given up, meanwhile")
	b.park()
	b.get("/sequences").want(t, http.StatusOK, "customer-1", "customer-7", "no key", ">held<", ">late<", "&lt;script&gt;", `href="./sequences/3"`)
	b.get("/sequences?rows=2").want(t, http.StatusOK, "There may be more keys", "Show more keys")
	b.get("/sequences/4").want(t, http.StatusOK, "customer-7", "order-2", "order-3", "/sequences/3/release", "billing")
	for _, path := range []string{"/sequences", "/sequences/3"} {
		p := b.get(path, as(LookWithoutPayload)).want(t, http.StatusOK, "hidden")
		p.wantNot(t, "customer-7")
		b.get(path, as(Look)).wantNot(t, "<form")
	}
	b.get("/sequences/1").wantNot(t, "/release")
	b.post("/sequences/3/release", reason, by("bob", Operate)).goes(t, "sequences/3")
	b.get("/sequences/3").want(t, http.StatusOK, "Decided: release", "<bdi>bob</bdi>", "INC-7")
	b.post("/sequences/3/discard", reason).want(t, http.StatusConflict, "was decided before")
}

// Feature V11: a letter says how many messages of its key wait in order.
func TestBehindLetter(t *testing.T) {
	b := newBench(t)
	of := func(partition string, key []byte) func(*poison.Letter) {
		return func(l *poison.Letter) {
			l.Origin.Topic, l.Origin.ConsumerGroup, l.Origin.Partition, l.Origin.Key = "orders", "billing", partition, key
		}
	}
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", "{}", of("3", []byte("customer-7"))), fixture.Letter("2", "{}", of("4", []byte("customer-7"))),
		fixture.Letter("3", "{}", of("none", []byte("customer-7"))), fixture.Letter("4", "{}", of("3", nil)))
	const mark = "Waiting in order"
	for range 2 { // without the table, and with it
		for seq := 2; seq <= 4; seq++ {
			p := b.get(fmt.Sprintf("/letters/%d", seq))
			testkit.Check(t, p.StatusCode == http.StatusOK && !strings.Contains(p.body, mark),
				"letter %d, of another key: %d %s", seq, p.StatusCode, p.body)
		}
		if len(testkit.Must(b.console.desk.Sequences(t.Context(), 1))) == 0 {
			b.park()
		}
	}
	b.get("/letters/1").want(t, http.StatusOK, mark, `/sequences/3">2 messages of this key`)
}

// Features V11, V14: the standing policies, and what keeps each from redriving: frozen, thawed, released with a reason.
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
	b.post("/policies/freeze", nil).want(t, 400, "The reason is empty")
	for _, step := range []struct{ path, says string }{
		{"freeze", "Thaw all policies"}, {"thaw", "Freeze all policies"}, {"timeouts/freeze", "Thaw the policy timeouts"},
		{"timeouts/thaw", "Freeze the policy timeouts"}, {"timeouts/9f3a/release", "Freeze the policy timeouts"},
	} {
		b.post("/policies/"+step.path, reason).want(t, 303)
		b.get("/campaigns").want(t, 200, step.says)
	}
	without("5 of 5 letters")
}

// standing has a policy, for which a cause is blocked.
func (b *bench) standing() {
	testkit.Must(campaigns.New(b.t.Context(), b.store, campaigns.Config{Policies: []campaigns.Policy{{Name: "timeouts",
		Filter: letters.Filter{Reasons: []string{"<b>timeout"}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}}}))
	testkit.Must(b.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'timeouts', '9f3a12bc00aabb', 1, 1, 'spillway', '5 of 5 letters failed again')`, []byte(hidden.Of(b.store).Service())))
}
