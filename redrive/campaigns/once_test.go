package campaigns_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: Starts with the same id, also at once, are one campaign. Another service's is not returned.
func TestStart_once(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(60)...)
		r := request
		r.ID = "9f3a12bc-0000-4000-8000-000000000001"
		for c, err := range startAtOnce(t, all, r, 4) {
			testkit.Check(t, err == nil && c.ID == r.ID, "%+v %v", c, err)
		}
		c, err := all.Start(t.Context(), r)
		testkit.Check(t, err == nil && c.Selected == 60 && c.State == campaigns.Running, "%+v %v", c, err)
		testkit.Equal(t, "campaigns", len(testkit.Must(all.List(t.Context(), campaigns.List{}))), 1)
		testkit.Equal(t, "on record", len(testkit.Must(hidden.Of(all).History(t.Context(), r.ID, 0))), 2)
		none := campaigns.Request{ID: "9f3a12bc-0000-4000-8000-000000000002", Filter: letters.Filter{Handlers: []string{"none"}}, Act: act}
		for range 2 {
			c, err := all.Start(t.Context(), none)
			testkit.Check(t, errors.Is(err, campaigns.ErrNoLetters) && c.State == campaigns.Cancelled, "%+v %v", c, err)
		}

		other := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "other"}))
		fixture.Publish(t, other, "orders.dlq", fixture.Several(1)...)
		theirs := open(t, other, config)
		c, err = theirs.Start(t.Context(), r)
		testkit.Check(t, err != nil && c.ID == "", "the campaign of another service: %+v", c)
		seq := fixture.List(t, store, letters.Filter{})[0].Seq
		testkit.Equal(t, "held by", testkit.Must(hidden.Of(all).Holding(t.Context(), seq))[seq], r.ID)
		testkit.Equal(t, "another service is told", len(testkit.Must(hidden.Of(theirs).Holding(t.Context(), seq))), 0)
	})
}

// Feature V6: a payload is replaced as a whole, of one letter, and the record has it. The other edits come behind it.
func TestEdit_payload(t *testing.T) {
	store, all := stored(t, fixture.SQLite, config,
		fixture.Letter("1", "no JSON"), fixture.Letter("2", "{}"), fixture.Letter("3", "{}"))
	out := working(t, all)
	text, empty := "{\"a\":1,\r\n \"to\": \"<Zoë>\"}\n", ""
	for seq, r := range map[int64]campaigns.Request{
		1: {Seqs: []int64{1}, Edit: &campaigns.Edit{Payload: &text, Merge: []byte(`{"a":2}`)}, Act: act},
		2: {Seqs: []int64{2}, Edit: &campaigns.Edit{Payload: &empty}, Act: act},
	} {
		_, plan, err := hidden.Of(all).Plan(t.Context(), r)
		testkit.Check(t, err == nil && len(plan.Sample) == 1 && plan.Sample[0].Edited != nil &&
			plan.Sample[0].Edited.Refused == "", "%d: %+v %v", seq, plan.Sample, err)
		c := reach(t, all, start(t, all, r).ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == 1, "%d: %+v", seq, c)
	}
	want := map[string]string{"1": `{"a":2,"to":"\u003cZoë\u003e"}`, "2": ""}
	for _, p := range out.All() {
		testkit.Check(t, string(p.Msg.Payload) == want[p.Msg.UUID], "%s: %q", p.Msg.UUID, p.Msg.Payload)
	}
	testkit.Equal(t, "letters were published", len(out.All()), 2)
	events := testkit.Must(store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventEdited}}))
	testkit.Check(t, len(events) == 2 && strings.Contains(events[0].Detail+events[1].Detail, "Zoë"), "%+v", events)
	for name, r := range map[string]campaigns.Request{
		"of all": {Edit: &campaigns.Edit{Payload: &text}, Act: act}, "of two": {Seqs: []int64{1, 3}, Edit: &campaigns.Edit{Payload: &text}, Act: act},
	} {
		_, err := all.Start(t.Context(), r)
		testkit.Check(t, errors.Is(err, campaigns.ErrRequest) && strings.Contains(err.Error(), "name the one"),
			"%s: %v", name, err)
	}
	testkit.Equal(t, "done", testkit.Must(hidden.Of(all).Forget(t.Context(), false, "Zoë>", "1")).Texts, 1)
}

// Feature V7: campaigns that were created at the same time are listed once each, on whatever page they are.
func TestList_pages(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(7)...)
		for seq := range int64(7) {
			start(t, all, campaigns.Request{Seqs: []int64{seq + 1}, Act: act})
		}
		testkit.Must(db.Exec(`UPDATE spillway_campaigns SET created_at = 1000000`))
		seen := map[string]int{}
		for l := (campaigns.List{Limit: 3}); ; {
			page := testkit.Must(all.List(t.Context(), l))
			if len(page) == 0 {
				break
			}
			for _, c := range page {
				seen[c.ID]++
				l.Before, l.BeforeID = c.CreatedAt, c.ID
			}
			testkit.Require(t, len(seen) <= 7, "the pages do not end")
		}
		for id, times := range seen {
			testkit.Check(t, times == 1, "%s is listed %d times", id, times)
		}
		testkit.Equal(t, "campaigns are listed", len(seen), 7)
	})
}

// Feature V7: in whatever order calls come, each leads to its state, or is ErrState and changes nothing.
func TestStates(t *testing.T) {
	random := testkit.Random(t)
	_, all := stored(t, fixture.SQLite, config, fixture.Several(1)...)
	type call func(context.Context, string, campaigns.Act) (campaigns.Campaign, error)
	calls := map[string]call{"pause": all.Pause, "resume": all.Resume, "cancel": all.Cancel, "approve": all.Approve}
	bob := campaigns.Act{By: "bob", Reason: "because"}
	for range 40 {
		r := request
		r.Approval = random.IntN(2) == 0
		if random.IntN(2) == 0 {
			r.NotBefore = time.Now().Add(time.Hour)
		}
		c := start(t, all, r)
		begun := campaigns.Running
		if !r.NotBefore.IsZero() {
			begun = campaigns.Scheduled
		}
		want := begun
		if r.Approval {
			want = campaigns.Approval
		}
		for range 12 {
			name := pick(random, "pause", "resume", "pause", "resume", "approve", "cancel")
			before, allowed := want, true
			switch {
			case name == "pause" && want == begun:
				want = campaigns.Paused
			case name == "resume" && want == campaigns.Paused, name == "approve" && want == campaigns.Approval:
				want = begun
			case name == "cancel" && want != campaigns.Cancelled:
				want = campaigns.Cancelled
			default:
				allowed = false
			}
			now, err := calls[name](t.Context(), c.ID, bob)
			testkit.Require(t, now.State == want && allowed == (err == nil) &&
				(err == nil || errors.Is(err, campaigns.ErrState)),
				"%s of a campaign that is %s: %s, want %s: %v", name, before, now.State, want, err)
		}
		if want != campaigns.Cancelled {
			testkit.Must(all.Cancel(t.Context(), c.ID, bob))
		}
	}
}

func pick(random *rand.Rand, names ...string) string { return names[random.IntN(len(names))] }
