package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
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
	c := testkit.Must(b.campaigns.Start(b.t.Context(), r))
	return c
}

// Feature V11: a campaign is paused, slowed, resumed and cancelled, each with a reason, which the record has. What its
// state does not allow is refused with the state, and what was typed stays.
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
		p := b.post(at+"/"+step.action, step.form, by("bob", Approve))
		p.want(t, step.status, step.says)
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

// Feature V11: a second person with the right to approve approves, and the person who asked does not, whatever the
// right.
func TestApprove(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(3)...)
	c := b.started(campaigns.Request{Approval: true})
	at := "/campaigns/" + c.ID
	p := b.get(at, by("ann", Approve))
	testkit.Check(t, strings.Contains(p.body, "You started this campaign, so another person must approve it.") &&
		!strings.Contains(p.body, "/approve\""), "the person who started it is offered to approve it: %s", p.body)
	b.get(at, by("bob", Operate)).wantNot(t, "/approve\"")
	b.post(at+"/approve", reason, by("ANN ", Approve)).want(t, http.StatusConflict, "is now: waits for approval")
	b.post(at+"/approve", reason, by("bob", Operate)).want(t, http.StatusForbidden)
	b.get(at, by("bob", Approve)).want(t, http.StatusOK, "/approve\"")
	b.post(at+"/approve", reason, by("bob", Approve)).goes(t, c.ID)
	b.get(at).want(t, http.StatusOK, "running", "<bdi>bob</bdi>")
}

// Feature V11: campaigns are listed by state, the newest first, page by page.
func TestCampaigns(t *testing.T) {
	b := newBench(t)
	b.get("/campaigns").want(t, http.StatusOK, "There is no such campaign.")
	const n = campaignsAtOnce + 2
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(n)...)
	for seq := range int64(n) {
		b.started(campaigns.Request{Seqs: []int64{seq + 1}})
	}
	first := b.get("/campaigns")
	first.want(t, http.StatusOK, "Older campaigns", "0 of 1")
	next := regexpNext.FindStringSubmatch(first.body)
	testkit.Require(t, next != nil, "%v", first.body)
	second := b.get("/" + strings.TrimPrefix(strings.ReplaceAll(next[1], "&amp;", "&"), "./"))
	if got := strings.Count(first.body, "<progress"); got != campaignsAtOnce {
		t.Errorf("%d campaigns on the first page", got)
	}
	if got := strings.Count(second.body, "<progress"); got != 2 {
		t.Errorf("%d campaigns on the second page", got)
	}
	b.get("/campaigns?state=paused").want(t, http.StatusOK, "There is no such campaign.", `value="paused" checked`)
}
