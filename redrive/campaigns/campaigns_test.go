package campaigns_test

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: a campaign redrives what waited at its start, once, the oldest failure first, and all is on record.
func TestCampaign(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store := d.NewStore(t)
		all := open(t, store, config)
		later := func(l *poison.Letter) { l.Failure.FirstFailedAt = fixture.FailedAt.Add(time.Hour) }
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("late", "{}", later), fixture.Letter("early", "{}"),
			fixture.Letter("other", "{}", fixture.From("payments")), fixture.Letter("often", "{}", fixture.RedrivenTimes(3)))
		c := start(t, all, request)
		testkit.Require(t, c.State == campaigns.Running && c.Selected == 3 && len(c.LeftOut) == 1 &&
			c.LeftOut[0] == (campaigns.LeftOut{Why: campaigns.NotAllowed, Topic: "payments", Letters: 1}), "%+v", c)
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("new", "{}"))
		out := working(t, all)
		c = reach(t, all, c.ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == 2 && c.Quarantined == 1 && c.Pending == 0 && c.NotHeard == 2 &&
			!c.StartedAt.IsZero() && !c.EndedAt.IsZero(), "%+v", c)
		sent := out.All()
		testkit.Require(t, len(sent) == 2 && sent[0].Msg.UUID == "early" && sent[1].Msg.UUID == "late" &&
			sent[0].Topic == "orders", "%+v", sent)
		m := sent[0].Msg.Metadata
		testkit.Check(t, m[poison.KeyRedriveID] == c.ID && m[poison.KeyRedrivenBy] == "ann" && m["tenant"] == "blue", "%v", m)
		fixture.WantCount(t, store, fixture.Status(letters.StatusRedriven), 2)
		fixture.WantCount(t, store, fixture.Status(letters.StatusQuarantined), 1)
		fixture.WantCount(t, store, letters.Filter{}, 2) // new, other

		events, err := hidden.Of(all).History(t.Context(), c.ID, 0)
		testkit.Check(t, err == nil && len(events) == 3 && events[0].Kind == inside.CampaignStarted &&
			events[0].By == act.By && events[0].Reason == act.Reason && events[2].Kind == inside.CampaignFinished,
			"%+v %v", events, err)
		audit, err := store.Audit(t.Context(), letters.EventFilter{RedriveIDs: []string{c.ID}})
		kinds := map[letters.EventKind]int{}
		for _, e := range audit {
			kinds[e.Kind]++
		}
		testkit.Check(t, err == nil && kinds[letters.EventSelected] == 3 && kinds[letters.EventRedriven] == 2 &&
			kinds[letters.EventQuarantined] == 1, "%v %v", kinds, err)
		listed, err := all.List(t.Context(), campaigns.List{States: []campaigns.State{campaigns.Finished}})
		testkit.Check(t, err == nil && len(listed) == 1 && listed[0].ID == c.ID &&
			listed[0].Request.Reason == act.Reason, "%+v %v", listed, err)
	})
}

// Features V5, V7: a dry run says what a campaign would do, and does none of it.
func TestPlan(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, campaigns.Config{Allow: []string{"orders"}, ApproveOver: 3}, fixture.OfTwo(5)...)
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("forged", "{}", fixture.From("admin")), fixture.Letter("none", "{}", fixture.From("")),
			fixture.Letter("often", "{}", fixture.RedrivenTimes(9)))
		plan, more, err := hidden.Of(all).Plan(t.Context(), campaigns.Request{Rate: 2, Edit: &campaigns.Edit{Merge: []byte(`{"n":1}`)}})
		testkit.NoError(t, err)
		testkit.Check(t, plan.Letters == 6 && plan.Quarantine == 1 && plan.Takes == 3*time.Second &&
			plan.NeedsApproval && len(more.Causes) == 3 && more.Causes[0].Letters == 3 &&
			more.Causes[0].Handler == "a" && len(more.Ages) == 1 && len(more.Targets) == 1 &&
			more.Targets[0] == (inside.TopicCount{Topic: "orders", Letters: 6}) && len(more.Sample) == 6,
			"%+v %+v", plan, more)
		edited := more.Sample[0].Edited
		testkit.Check(t, edited != nil && string(edited.Before) == "{}" && string(edited.After) == `{"n":1}`, "%+v", edited)
		testkit.Check(t, len(plan.LeftOut) == 2 && plan.LeftOut[0].Letters+plan.LeftOut[1].Letters == 2,
			"%+v", plan.LeftOut)
		fixture.WantCount(t, store, letters.Filter{}, 8)
		testkit.Equal(t, "campaigns", len(testkit.Must(all.List(t.Context(), campaigns.List{}))), 0)
	})
}

// Feature V7: of campaigns started at once each letter is in one. When that is cancelled, another can take it.
func TestOneCampaignPerLetter(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Several(120)...)
		selected := 0
		var ids []string
		for c, err := range startAtOnce(t, all, request, 2) {
			testkit.Require(t, err == nil || errors.Is(err, campaigns.ErrNoLetters), "%v", err)
			if err == nil {
				ids = append(ids, c.ID)
			}
			selected += c.Selected
		}
		testkit.Equal(t, "letters were selected", selected, 120)
		testkit.Equal(t, "letters are left", testkit.Must(all.Plan(t.Context(), request)).Letters, 0)
		wantHeld(t, all, store, 120, ids...)
		for _, id := range ids {
			testkit.Equal(t, "c", testkit.Must(all.Cancel(t.Context(), id, act)).State, campaigns.Cancelled)
		}
		wantHeld(t, all, store, 0)
		c := start(t, all, request)
		testkit.Check(t, c.Selected == 120, "%+v", c)
		out := working(t, all)
		reach(t, all, c.ID, campaigns.Finished)
		wantIDs(t, out, 120)
		wantHeld(t, all, store, 0)
		testkit.Check(t, testkit.Err(hidden.Of(all).Holding(t.Context(), make([]int64, campaigns.MaxSeqs+1)...)) != nil,
			"more letters than may be are no error")
	})
}

// startAtOnce starts a request some times, and yields the answers.
func startAtOnce(t *testing.T, all *campaigns.Campaigns, r campaigns.Request, n int) iter.Seq2[campaigns.Campaign, error] {
	cs, errs := make([]campaigns.Campaign, n), make([]error, n)
	var starts sync.WaitGroup
	for i := range n {
		starts.Go(func() { cs[i], errs[i] = all.Start(t.Context(), r) })
	}
	starts.Wait()
	return func(yield func(campaigns.Campaign, error) bool) {
		for i := range n {
			if !yield(cs[i], errs[i]) {
				return
			}
		}
	}
}

// wantHeld fails the test unless so many letters of the store are held, and by these campaigns alone.
func wantHeld(t *testing.T, all *campaigns.Campaigns, store *letters.Store, n int, ids ...string) {
	t.Helper()
	heads := testkit.Must(store.Heads(t.Context(), letters.Filter{Statuses: letters.Statuses(), Limit: letters.MaxLimit}))
	var seqs []int64
	for _, h := range heads {
		seqs = append(seqs, h.Seq)
	}
	holding := testkit.Must(hidden.Of(all).Holding(t.Context(), seqs...))
	testkit.Check(t, len(holding) == n, "%d letters of %d are held, want %d", len(holding), len(seqs), n)
	for seq, id := range holding {
		testkit.Check(t, slices.Contains(ids, id) && slices.Contains(seqs, seq), "letter %d is held by %s", seq, id)
	}
}

// Feature V6: a campaign that no worker can do says on record what the worker lacks, once, and not in each round.
func TestLeftToOtherWorkers(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	fixture.Publish(t, store, "orders.dlq", fixture.Letter("a", "{}"))
	c := config
	c.Allow = append(slices.Clone(c.Allow), "elsewhere")
	all := open(t, store, c)
	r := request
	r.To = "elsewhere"
	id := start(t, all, r).ID
	run(t, open(t, store, config), &fixture.Outbox{}, quick)
	left := func() (reasons []string) {
		history := testkit.Must(hidden.Of(all).History(t.Context(), id, 0))
		for _, e := range history {
			if e.Kind == inside.CampaignLeft && e.By == campaigns.ByItself && e.Details != "" {
				reasons = append(reasons, e.Reason)
			}
		}
		return reasons
	}
	testkit.Eventually(t, "the record says why", func() bool { return len(left()) > 0 })
	run(t, open(t, store, config), &fixture.Outbox{}, quick) // another instance of the same version
	out := working(t, all)
	reach(t, all, id, campaigns.Finished)
	got := left()
	testkit.Check(t, len(got) == 1 && got[0] == `the worker's Config.Allow does not have the topic "elsewhere"`,
		"%q", got)
	testkit.Equal(t, "messages are redriven", len(out.All()), 1)
}

// Features V5, V7: letters of another campaign do not count towards Max, in the dry run as in Start.
func TestMaxMeetsAnotherCampaign(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Letter("other", "{}", fixture.From("payments")))
		fixture.Publish(t, store, "orders.dlq", fixture.Several(700)...)
		held := request
		held.Max, held.Approval = 530, true
		a := start(t, all, held)
		testkit.Require(t, a.Selected == 530, "%+v", a)
		for _, most := range []int{10, 60, 200} {
			r := request
			r.Max = most
			want := min(most, 170)
			plan, err := all.Plan(t.Context(), r)
			testkit.Check(t, err == nil && plan.Letters == want &&
				slices.Contains(plan.LeftOut, campaigns.LeftOut{Why: campaigns.InCampaign, Campaign: a.ID, Letters: 530}),
				"Max %d: the plan is %d letters, %+v %v", most, plan.Letters, plan.LeftOut, err)
			c, err := all.Start(t.Context(), r)
			testkit.Require(t, err == nil && c.Selected == want && slices.Equal(c.LeftOut, plan.LeftOut),
				"Max %d: %d letters are selected, %+v %v", most, c.Selected, c.LeftOut, err)
			testkit.Must(all.Cancel(t.Context(), c.ID, act))
		}
		r := request
		r.Seqs, r.Max = []int64{2, 3, 4}, 2 // all of another campaign
		testkit.Is(t, testkit.Err(all.Start(t.Context(), r)), campaigns.ErrNoLetters)
	})
}
