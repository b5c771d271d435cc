package campaigns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature V7: a Start that comes several times with the same id is one campaign, also if two come at once, and another
// service's is not returned.
func TestStart_once(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(60)...)
		r := request
		r.ID = "9f3a12bc-0000-4000-8000-000000000001"
		type answer struct {
			c   campaigns.Campaign
			err error
		}
		answers := make(chan answer)
		for range 4 {
			go func() { c, err := all.Start(t.Context(), r); answers <- answer{c, err} }()
		}
		for range 4 {
			a := <-answers
			testkit.Check(t, a.err == nil && a.c.ID == r.ID, "%+v %v", a.c, a.err)
		}
		c, err := all.Start(t.Context(), r)
		testkit.Check(t, err == nil && c.Selected == 60 && c.State == campaigns.Running, "%+v %v", c, err)
		if listed, err := all.List(t.Context(), campaigns.List{}); err != nil || len(listed) != 1 {
			t.Errorf("%d campaigns, %v", len(listed), err)
		}
		events, err := all.Inside().History(t.Context(), r.ID, 0)
		testkit.Check(t, err == nil && len(events) == 2, "%+v %v", events, err)
		none := campaigns.Request{ID: "9f3a12bc-0000-4000-8000-000000000002", Filter: letters.Filter{Handlers: []string{"none"}}, Act: act}
		for range 2 {
			if c, err := all.Start(t.Context(), none); !errors.Is(err, campaigns.ErrNoLetters) || c.State != campaigns.Cancelled {
				t.Errorf("%+v %v", c, err)
			}
		}

		other := testkit.Must(letters.NewStore(t.Context(), db, settings.Shared{Service: "other"}))
		fixture.Publish(t, other, "orders.dlq", fixture.Several(1)...)
		theirs := open(t, other, config)
		if c, err := theirs.Start(t.Context(), r); err == nil || c.ID != "" {
			t.Errorf("the campaign of another service: %+v", c)
		}
		seq := fixture.List(t, store, letters.Filter{})[0].Seq
		if held, err := all.Inside().Holding(t.Context(), seq); err != nil || held[seq] != r.ID {
			t.Errorf("%v %v", held, err)
		}
		if held, err := theirs.Inside().Holding(t.Context(), seq); err != nil || len(held) > 0 {
			t.Errorf("another service is told %v %v", held, err)
		}
	})
}

// Feature V7: an id that no record can keep, or that could be guessed by accident, is refused.
func TestStart_id(t *testing.T) {
	all := open(t, fixture.SQLite.NewStore(t), config)
	for _, id := range []string{"short", strings.Repeat("x", 65), "9f3a12bc-0000-4000-8000-00000000000'", "9f3a12bc-0000-4000-8000-\x00000000000"} {
		r := request
		r.ID = id
		if _, err := all.Start(t.Context(), r); !errors.Is(err, campaigns.ErrRequest) || !strings.Contains(err.Error(), "Request.ID") {
			t.Errorf("%q: %v", id, err)
		}
	}
	const id = "9f3a12bc-0000-4000-8000-000000000001"
	for name, err := range map[string]error{
		"no reason": second(all.Pause(t.Context(), id, campaigns.Act{By: "ann"})), "a rate": second(all.SetRate(t.Context(), id, -1, act)),
		"no name": second(all.Start(t.Context(), campaigns.Request{})), "a topic": second(all.Start(t.Context(), campaigns.Request{To: "other", Act: act})),
	} {
		testkit.Check(t, errors.Is(err, campaigns.ErrRequest), "%s: %v", name, err)
	}
}

func second(_ campaigns.Campaign, err error) error { return err }

// Feature V6: a payload is replaced as a whole, of one letter, and the record has it. The other edits come behind it.
func TestEdit_payload(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store := d.NewStore(t)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("1", "no JSON"), fixture.Letter("2", "{}"), fixture.Letter("3", "{}"))
		out := &fixture.Outbox{}
		run(t, all, out, quick)
		text, empty := "{\"a\":1,\r\n \"to\": \"<Zoë>\"}\n", ""
		for seq, r := range map[int64]campaigns.Request{
			1: {Seqs: []int64{1}, Edit: &campaigns.Edit{Payload: &text, Merge: []byte(`{"a":2}`)}, Act: act},
			2: {Seqs: []int64{2}, Edit: &campaigns.Edit{Payload: &empty}, Act: act},
		} {
			_, plan, err := all.Inside().Plan(t.Context(), r)
			if err != nil || len(plan.Sample) != 1 || plan.Sample[0].Edited == nil || plan.Sample[0].Edited.Refused != "" {
				t.Errorf("%d: %+v %v", seq, plan.Sample, err)
			}
			c := reach(t, all, start(t, all, r).ID, campaigns.Finished)
			testkit.Check(t, c.Redriven == 1, "%d: %+v", seq, c)
		}
		want := map[string]string{"1": "{\"a\":2,\r\n \"to\": \"<Zoë>\"}\n", "2": ""}
		for _, p := range out.All() {
			testkit.Check(t, string(p.Msg.Payload) == want[p.Msg.UUID], "%s: %q", p.Msg.UUID, p.Msg.Payload)
		}
		testkit.Equal(t, "letters were published", len(out.All()), 2)
		events, err := store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventEdited}})
		testkit.Check(t, err == nil && len(events) == 2 && strings.Contains(events[0].Detail+events[1].Detail, "Zoë"),
			"%+v %v", events, err)
		for name, r := range map[string]campaigns.Request{
			"of all": {Edit: &campaigns.Edit{Payload: &text}, Act: act}, "of two": {Seqs: []int64{1, 3}, Edit: &campaigns.Edit{Payload: &text}, Act: act},
		} {
			if _, err := all.Start(t.Context(), r); !errors.Is(err, campaigns.ErrRequest) || !strings.Contains(err.Error(), "name the one") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if done, err := all.Inside().Forget(t.Context(), false, "Zoë>", "1"); err != nil || done.Texts != 1 {
			t.Errorf("%+v %v", done, err)
		}
	})
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
