package campaigns_test

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: what an ended campaign had is purged by its age, on record. Its counts, its history and its letters stay,
// and a campaign that has not ended, or ended later, keeps its rows.
func TestPurge(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(620)...)
		r := request
		r.Max = 600
		out := &fixture.Outbox{}
		stop := run(t, all, out, quick)
		ended := reach(t, all, start(t, all, r).ID, campaigns.Finished)
		stop()
		begun := start(t, all, request)
		rows := func() (n int) {
			testkit.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM spillway_campaign_letters`).Scan(&n))
			return n
		}
		act := campaigns.Act{By: "ann", Reason: "older than a month"}
		if n, err := all.Purge(t.Context(), ended.EndedAt, act); n != 0 || err != nil || rows() != 620 {
			t.Errorf("%d purged that ended later, %v", n, err)
		}
		for _, want := range []int{600, 0} {
			if n, err := all.Purge(t.Context(), time.Now().Add(time.Hour), act); n != want || err != nil || rows() != 20 {
				t.Errorf("purged %d, want %d, %v, %d are left", n, want, err, rows())
			}
		}
		events, err := all.Inside().History(t.Context(), ended.ID, 0)
		if err != nil || len(events) != 4 || events[3].Kind != inside.CampaignPurged || events[3].By != act.By || events[3].Reason != act.Reason || events[3].Details != "600 letters" {
			t.Errorf("%+v %v", events, err)
		}
		if c, err := all.Get(t.Context(), ended.ID); err != nil || c.Redriven != 600 || c.Selected != 600 {
			t.Errorf("%+v %v", c, err)
		}
		fixture.WantCount(t, store, fixture.Status(letters.StatusRedriven), 600)
		run(t, all, out, quick)
		reach(t, all, begun.ID, campaigns.Finished)
		wantIDs(t, out, 620)
		if _, err := all.Purge(t.Context(), time.Time{}, act); err == nil {
			t.Error("a time that is zero is accepted")
		}
		if _, err := all.Purge(t.Context(), time.Now(), campaigns.Act{}); err == nil {
			t.Error("an act without a name is accepted")
		}
	})
}
