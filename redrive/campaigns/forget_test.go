package campaigns_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature D14: a person's values go from all texts of campaigns, and nothing else does. An open one keeps them.
func TestForget(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db, ctx := d.Create(t)(), t.Context()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		const person, short = "ann@example.com", "42"
		fixture.Publish(t, store, "orders.dlq", fixture.Several(120)...) // more campaigns than a page, each with one letter
		why := campaigns.Act{By: "eve", Reason: "for " + person}
		var ids []string
		for i := range 103 {
			r := campaigns.Request{Filter: letters.Filter{IDs: []string{fmt.Sprint("id-", i)}}, Act: why}
			switch i {
			case 0:
				r.Edit = &campaigns.Edit{Set: map[string]string{"to": person, "n": short, "other": "142"}, Unset: []string{"x"},
					Merge: []byte(`{"n": 42, "m": 142, "big": 90071992547409931.10, "to": {"list": ["x ` + person + `"]}}`),
					Patch: []byte(`[{"op":"add","path":"/42","value":"` + person + `"}]`)}
			case 1:
				r.Edit = &campaigns.Edit{Merge: []byte(`{ "kept" :  1.50 }`)}
			}
			ids = append(ids, start(t, all, r).ID)
		}
		testkit.Must(all.Pause(ctx, ids[2], campaigns.Act{By: "eve", Reason: "of " + person}))
		dry, err := hidden.Of(all).Forget(ctx, true, person, short)
		testkit.Check(t, err == nil && dry.Texts == 102+103+1 && slices.Equal(dry.Open, ids[:1]),
			"a dry run says %d texts, %d open, %v", dry.Texts, len(dry.Open), err)
		done, err := hidden.Of(all).Forget(ctx, false, person, short)
		testkit.Check(t, err == nil && done.Texts == dry.Texts && slices.Equal(done.Open, ids[:1]),
			"%d texts, %d open, %v", done.Texts, len(done.Open), err)
		if c, err := all.Get(ctx, ids[0]); err != nil || c.Request.Edit.Set["to"] != person || !strings.Contains(string(c.Request.Edit.Merge), person) {
			t.Errorf("the edit of an open campaign: %s, %v", inside.EditText(c.Request.Edit), err)
		}
		testkit.Must(all.Cancel(ctx, ids[0], campaigns.Act{By: "eve", Reason: "r"}))
		for _, want := range []int{1, 0} {
			done, err := hidden.Of(all).Forget(ctx, false, person, short)
			testkit.Check(t, err == nil && done.Texts == want && len(done.Open) == 0,
				"%+v, %v, want %d texts", done, err, want)
		}
		c := testkit.Must(all.Get(ctx, ids[0]))
		if e := c.Request.Edit; fmt.Sprint(e.Set) != "map[n:erased other:142 to:erased]" || !slices.Equal(e.Unset, []string{"x"}) ||
			string(e.Merge) != `{"big":90071992547409931.10,"m":142,"n":"erased","to":{"list":["x erased"]}}` ||
			string(e.Patch) != `[{"op":"add","path":"/42","value":"erased"}]` || c.Request.Reason != "for erased" || c.Request.Filter.IDs[0] != "id-0" {
			t.Errorf("%s, %q", inside.EditText(e), c.Request.Reason)
		}
		c = testkit.Must(all.Get(ctx, ids[1]))
		testkit.Check(t, strings.Contains(string(c.Request.Edit.Merge), "1.50"), "%s", c.Request.Edit.Merge)
		c, err = all.Get(ctx, ids[2])
		testkit.Check(t, err == nil && c.Why == "of erased" && c.State == campaigns.Paused, "%+v, %v", c, err)
		history, err := hidden.Of(all).History(ctx, ids[2], 0)
		testkit.Check(t, err == nil && len(history) == 3 && history[0].Reason == "for erased" &&
			history[2].Reason == "of erased", "%+v, %v", history, err)

		testkit.Must(db.Exec(`UPDATE spillway_campaign_letters SET why = 'edit: no ` + person + `'`))
		for _, want := range []int{2, 0} {
			testkit.Returns(t, want)(hidden.Of(all).ForgetLetters(ctx, 3, 4, 999))
		}
		var left int
		err = db.QueryRow(`SELECT COUNT(*) FROM spillway_campaign_letters WHERE why = 'erased'`).Scan(&left)
		testkit.Check(t, err == nil && left == 2, "%d, %v", left, err)
		testkit.Returns(t, 0)(hidden.Of(all).ForgetLetters(ctx))
	})
}

// Feature D14: two persons are forgotten at once, and neither comes back with the other's erasure.
func TestForget_two(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		openDB := d.Create(t)
		store := fixture.StoreOn(t, openDB())
		all := open(t, store, config)
		persons := []string{"ann@example.com", "bob@example.com"}
		fixture.Publish(t, store, "orders.dlq", fixture.Several(20)...)
		var ids []string
		for i := range 20 { // each of the two has read all of them before the other writes, as a rule
			r := campaigns.Request{Filter: letters.Filter{IDs: []string{fmt.Sprint("id-", i)}}, Act: campaigns.Act{By: "eve", Reason: strings.Join(persons, " and ")}}
			ids = append(ids, start(t, all, r).ID)
		}
		var both sync.WaitGroup
		texts := make([]int, len(persons))
		for i, person := range persons {
			all := open(t, fixture.StoreOn(t, openDB()), config)
			both.Go(func() {
				done, err := hidden.Of(all).Forget(t.Context(), false, person)
				testkit.Check(t, err == nil && len(done.Open) <= 0, "%+v, %v", done, err)
				texts[i] = done.Texts
			})
		}
		both.Wait()
		for _, id := range ids {
			c, err1 := all.Get(t.Context(), id)
			events, err2 := hidden.Of(all).History(t.Context(), id, 0)
			text := fmt.Sprint(c, events)
			testkit.Require(t, err1 == nil && err2 == nil && !strings.Contains(text, "@example.com"),
				"%v %v %v", err1, err2, text)
		}
		want := 2 * len(ids)
		testkit.Check(t, texts[0] == want && texts[1] == want, "%d texts of each, want %d", texts, want)
	})
}

// Feature V7: what an ended campaign had is purged by its age, on record. Its history and its letters stay.
func TestPurge(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(620)...)
		r := request
		r.Max = 20
		begun := start(t, all, r)
		ended := testkit.Must(all.Cancel(t.Context(), start(t, all, request).ID, act))
		rows := func() (n int) {
			testkit.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM spillway_campaign_letters`).Scan(&n))
			return n
		}
		act := campaigns.Act{By: "ann", Reason: "older than a month"}
		n, err := all.Purge(t.Context(), ended.EndedAt, act)
		testkit.Check(t, n == 0 && err == nil && rows() == 620, "%d purged that ended later, %v", n, err)
		for _, want := range []int{600, 0} {
			testkit.Returns(t, want)(all.Purge(t.Context(), time.Now().Add(time.Hour), act))
			testkit.Equal(t, "left", rows(), 20)
		}
		events := testkit.Must(hidden.Of(all).History(t.Context(), ended.ID, 0))
		testkit.Check(t, len(events) == 4 && events[3].Kind == inside.CampaignPurged && events[3].By == act.By &&
			events[3].Reason == act.Reason && events[3].Details == "600 letters", "%+v", events)
		testkit.Equal(t, "selected", testkit.Must(all.Get(t.Context(), ended.ID)).Selected, 600)
		out := working(t, all)
		reach(t, all, begun.ID, campaigns.Finished)
		wantIDs(t, out, 20)
		testkit.Returns(t, 20)(all.Purge(t.Context(), time.Now().Add(time.Hour), act))
		fixture.WantCount(t, store, letters.Filter{}, 600)
		testkit.Check(t, testkit.Err(all.Purge(t.Context(), time.Time{}, act)) != nil,
			"a time that is zero is accepted")
		testkit.Check(t, testkit.Err(all.Purge(t.Context(), time.Now(), campaigns.Act{})) != nil,
			"an act without a name is accepted")
	})
}
