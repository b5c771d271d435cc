package campaigns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: a campaign is paused, resumed, given another rate and cancelled while it runs.
func TestSteer(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Several(200)...)
		r := request
		r.Rate = 20
		c := start(t, all, r)
		var calls atomic.Int64
		cancelled := make(chan struct{})
		out := &fixture.Outbox{Before: func(string, *message.Message) error {
			if calls.Add(1) > 110 { // letters are left when the campaign is cancelled, however slow this machine looks
				<-cancelled
			}
			return nil
		}}
		run(t, all, out, quick)
		published := func(n int) func() bool { return func() bool { return len(out.All()) >= n } }
		testkit.Eventually(t, "it runs", published(3))
		c, err := all.Pause(t.Context(), c.ID, act)
		testkit.Require(t, err == nil && c.State == campaigns.Paused && c.Why == act.Reason, "%v %v", c, err)
		var still campaigns.Campaign
		testkit.Eventually(t, "what was in hand is counted", func() bool {
			before := len(out.All())
			time.Sleep(100 * time.Millisecond)
			still, err = all.Get(t.Context(), c.ID)
			return err == nil && len(out.All()) == before && still.Redriven == before
		})
		testkit.Must(all.SetRate(t.Context(), c.ID, 2000, act))
		c, err = all.Resume(t.Context(), c.ID, act)
		testkit.Require(t, err == nil && c.State == campaigns.Running && c.Rate == 2000, "%+v, %v", c, err)
		testkit.Eventually(t, "it goes on, faster", published(100))
		testkit.Equal(t, "state", testkit.Must(all.Cancel(t.Context(), c.ID, act)).State, campaigns.Cancelled)
		testkit.Is(t, testkit.Err(all.SetRate(t.Context(), c.ID, 1, act)), campaigns.ErrState)
		testkit.Is(t, testkit.Err(all.Get(t.Context(), "x'; DROP TABLE spillway_campaigns; --")), campaigns.ErrNotFound)
		held := -1
		free := func(most int) func() bool {
			return func() bool {
				plan := testkit.Must(all.Plan(t.Context(), request))
				held = 0
				for _, left := range plan.LeftOut {
					held += left.Letters
				}
				return plan.Letters > 0 && held <= most
			}
		}
		state := func() string { return fmt.Sprint(held, " are held, published ", len(out.All())) }
		testkit.Eventually(t, "all but one are free, while a publisher does not return", free(1), state)
		close(cancelled)
		testkit.Eventually(t, "the letters are free", free(0), state)
		reach(t, all, start(t, all, request).ID, campaigns.Finished)
		testkit.Eventually(t, "all is published once or waits", func() bool {
			n, err := store.Count(t.Context(), letters.Filter{})
			return err == nil && n+len(out.All()) == 200
		})
		wantIDs(t, out, len(out.All()))
		var what []string
		for _, e := range testkit.Must(hidden.Of(all).History(t.Context(), c.ID, 0)) {
			what = append(what, e.Kind)
		}
		testkit.Check(t, slices.Equal(what, []string{inside.CampaignStarted, inside.CampaignRan, inside.CampaignPaused,
			inside.CampaignRateSet, inside.CampaignResumed, inside.CampaignCancelled}), "%v", what)
	})
}

// Feature V7: every call that changes a campaign has a name and a reason.
func TestActs(t *testing.T) {
	_, all := stored(t, fixture.SQLite, config, fixture.Several(3)...)
	c := start(t, all, request)
	for _, bad := range []campaigns.Act{{}, {By: "ann"}, {Reason: "x"}, {By: " ", Reason: "x"}, {By: "a\x00", Reason: "x"}, {By: string(make([]byte, 2000)), Reason: "x"}} {
		testkit.Check(t, testkit.Err(all.Cancel(t.Context(), c.ID, bad)) != nil, "%+v is accepted", bad)
		testkit.Check(t, testkit.Err(all.Start(t.Context(), campaigns.Request{Act: bad})) != nil,
			"%+v is accepted", bad)
	}
	for _, bad := range []campaigns.Request{
		{Max: -1}, {Rate: -1}, {Rate: 1e9}, {Concurrency: 1000}, {StopAt: 2}, {Canary: -1}, {Max: 2, Canary: 3}, {To: "admin"}, {To: "orders", FirstStage: true},
		{Filter: letters.Filter{Limit: 5}}, {Filter: letters.Filter{NewestFirst: true}}, {Seqs: []int64{0}}, {Seqs: []int64{1}, Filter: letters.Filter{Topics: []string{"orders"}}},
		{Seqs: make([]int64, 0, 1), Filter: letters.Filter{Topics: []string{"\xff"}}}, {Edit: &campaigns.Edit{}}, {CanaryWait: -1},
		{ID: "short"}, {ID: strings.Repeat("x", 65)}, {ID: "9f3a12bc-0000-4000-8000-00000000000'"}, {ID: "9f3a12bc-0000-4000-8000-\x00000000000"},
	} {
		bad.Act = act
		_, err := all.Start(t.Context(), bad)
		testkit.Check(t, errors.Is(err, campaigns.ErrRequest), "%+v: %v", bad, err)
	}
	_, err := all.Start(t.Context(), request)
	says := "the campaign " + c.ID + " has 3: wait for its end, or cancel it"
	testkit.Check(t, errors.Is(err, campaigns.ErrNoLetters) && strings.Contains(err.Error(), says),
		"%v; want %q", err, says)
}

// Feature V7: a campaign over a size needs another person, also if the program that started it knows nothing of that.
func TestApproval(t *testing.T) {
	store, all := stored(t, fixture.SQLite, campaigns.Config{Allow: []string{"orders"}, ApproveOver: 5},
		fixture.Several(6)...)
	out := &fixture.Outbox{}
	c := start(t, open(t, store, campaigns.Config{}), request)
	testkit.Require(t, c.State == campaigns.Running, "%v", c.State)
	run(t, all, out, quick)
	reach(t, all, c.ID, campaigns.Approval)
	testkit.Is(t, testkit.Err(all.Approve(t.Context(), c.ID, campaigns.Act{By: " Ann", Reason: "me too"})), campaigns.ErrState)
	testkit.Check(t, len(out.All()) <= 0, "it was not approved")
	bob := campaigns.Act{By: "bob", Reason: "looked at it"}
	testkit.Equal(t, "approved by", testkit.Must(all.Approve(t.Context(), c.ID, bob)).ApprovedBy, "bob")
	reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, 6)
}

// Feature V7: a campaign waits for its time, by the database's clock.
func TestSchedule(t *testing.T) {
	_, all := stored(t, fixture.SQLite, config, fixture.Several(3)...)
	r := request
	r.NotBefore = time.Now().Add(300 * time.Millisecond)
	out := &fixture.Outbox{}
	c := start(t, all, r)
	testkit.Equal(t, "", c.State, campaigns.Scheduled)
	run(t, all, out, quick)
	reach(t, all, c.ID, campaigns.Finished)
	for _, p := range out.All() {
		early := r.NotBefore.Sub(p.At)
		testkit.Check(t, early <= 2*time.Millisecond, "published %s early", early)
	}
}

// failing is a live topic whose handler fails all letters that fail chooses: they come back as dead letters.
func failing(t testing.TB, store *letters.Store, fail func(id string) bool) *fixture.Outbox {
	return &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
		if !fail(msg.UUID) {
			return nil
		}
		return store.Publish("orders.dlq", failedAgain(msg))
	}}
}

func failedAgain(msg *message.Message) *message.Message {
	l := poison.Read(msg)
	l.Failure = poison.Failure{Class: 1, Reason: "again", Description: "still unknown", FirstFailedAt: time.Now(), LastFailedAt: time.Now()}
	return l.Encode()
}

// Feature V7: the canary alone, and nothing more if too many of it fail again. Resume says that the rest may go.
func TestCanary(t *testing.T) {
	store, all := stored(t, fixture.SQLite, config, fixture.Several(60)...)
	r := request
	r.Canary, r.Concurrency, r.CanaryWait = 10, 4, time.Hour
	r.StopAfter = 1000                                                    // or the last of the rest could stop it before it ends
	out := failing(t, store, func(id string) bool { return id < "id-4" }) // seven of the first ten
	stop := run(t, all, out, quick)
	run(t, all, out, quick)
	c := start(t, all, r)
	c = reach(t, all, c.ID, campaigns.Paused)
	testkit.Check(t, c.Redriven == 10 && c.FailedAgain >= 3 && c.Pending == 50, "%+v", c)
	wantIDs(t, out, 10)
	stop()
	testkit.Must(all.Resume(t.Context(), c.ID, act))
	reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, 60)
}

// Feature V7: a canary of which nothing bad is heard lets the rest go after its wait.
func TestCanary_passes(t *testing.T) {
	store, all := stored(t, fixture.SQLite, config, fixture.Several(30)...)
	r := request
	r.Canary, r.CanaryWait = 10, 200*time.Millisecond
	out := failing(t, store, func(id string) bool { return id == "id-3" })
	run(t, all, out, quick)
	c := start(t, all, r)
	c = reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, 30)
	wait := out.All()[10].At.Sub(out.All()[9].At)
	testkit.Check(t, wait >= 150*time.Millisecond, "the eleventh came %s after the tenth", wait)
	testkit.Eventually(t, "the one that failed again is counted", func() bool {
		c, _ = all.Get(t.Context(), c.ID)
		return c.FailedAgain == 1 && c.NotHeard == 29
	})
}

// Features V7, V12, promise P6, decision 22: too many failures stop a campaign, with ids or without, until Resume.
func TestStopsItself(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) { testStopsItself(t, d, fixture.Several(200)) })
	t.Run("no ids", func(t *testing.T) {
		some := make([]*message.Message, 200)
		for i := range some {
			some[i] = fixture.Letter("", fmt.Sprintf(`{"n":%d}`, i))
		}
		testStopsItself(t, fixture.SQLite, some)
	})
}

func testStopsItself(t *testing.T, d fixture.Database, some []*message.Message) {
	store, all := stored(t, d, config, some...)
	r := request
	r.StopAfter, r.Concurrency = 20, 4
	var healed atomic.Bool
	var calls atomic.Int64
	var id atomic.Value
	back := failing(t, store, func(string) bool { return !healed.Load() })
	out := &fixture.Outbox{Before: func(topic string, msg *message.Message) error {
		n := calls.Add(1)
		for ; n > 100 && !healed.Load(); time.Sleep(5 * time.Millisecond) { // it is heard of, however slow the machine is
			now, err := all.Get(context.Background(), id.Load().(string))
			if err == nil && now.State == campaigns.Paused {
				break
			}
		}
		return back.Publish(topic, msg)
	}}
	c := start(t, all, r)
	id.Store(c.ID)
	run(t, all, out, quick)
	c = reach(t, all, c.ID, campaigns.Paused)
	testkit.Check(t, c.Redriven != 200 && c.FailedAgain >= 5, "%+v", c)
	testkit.Eventually(t, "the last ones are heard of", func() bool {
		c, _ = all.Get(t.Context(), c.ID)
		return c.FailedAgain == c.Redriven && c.Redriven == len(out.All())
	})
	for _, l := range fixture.List(t, store, letters.Filter{RedriveIDs: []string{c.ID}}) {
		testkit.Check(t, l.Redrive.ID == c.ID && l.Redrive.Letter != "" && l.Redrive.Letter != l.Identity,
			"letter %d says that it was %q of %q", l.Seq, l.Redrive.Letter, l.Redrive.ID)
	}
	healed.Store(true)
	testkit.Must(all.Resume(t.Context(), c.ID, act))
	c = reach(t, all, c.ID, campaigns.Finished)
	testkit.Check(t, c.Redriven == 200 && c.FailedAgain != 200 && len(out.All()) == 200, "%+v", c)
}

// Feature V7: a target that is down pauses the campaign, which goes on by itself or by hand.
func TestTargetDown(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			_, all := stored(t, fixture.SQLite, config, fixture.Several(100)...)
			r := request
			r.ResumeAfter, r.Concurrency = after, 2
			var calls, down atomic.Int64
			down.Store(1)
			out := &fixture.Outbox{Before: func(string, *message.Message) error {
				if calls.Add(1) > 50 && down.Load() == 1 {
					return fixture.ErrDown
				}
				return nil
			}}
			run(t, all, out, quick.Tuned(0, 0, 1))
			c := reach(t, all, start(t, all, r).ID, campaigns.Paused)
			testkit.Check(t, c.Redriven == 50 && c.Failed == 0 && c.Pending == 50 &&
				c.ResumeAt.IsZero() == (after == 0), "%+v", c)
			down.Store(0)
			if after == 0 {
				testkit.Must(all.Resume(t.Context(), c.ID, act))
			}
			c = reach(t, all, c.ID, campaigns.Finished)
			testkit.Check(t, c.Redriven == 100, "%+v", c)
			wantIDs(t, out, 100)
		})
	}
}

// Feature V7: letters that the publisher never takes do not keep the others, and wait as before.
func TestRefusedLetters(t *testing.T) {
	store, all := stored(t, fixture.SQLite, config, fixture.Several(20)...)
	out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
		switch msg.UUID {
		case "id-3":
			return fmt.Errorf("x: %w", classify.ErrTooLarge)
		case "id-7":
			panic("publisher")
		}
		return nil
	}}
	run(t, all, out, quick.Tuned(0, 0, 1))
	c := reach(t, all, start(t, all, request).ID, campaigns.Finished)
	testkit.Check(t, c.Failed == 2 && c.Redriven == 18, "%+v", c)
	fixture.WantCount(t, store, letters.Filter{IDs: []string{"id-3", "id-7"}}, 2)
	wantIDs(t, out, 18)
}
