package campaigns_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Features V5, V7: letters that another campaign has do not count towards Max: the dry run and Start take the same
// letters, and leave out the same.
func TestMaxMeetsAnotherCampaign(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store := d.NewStore(t)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("other", "{}", fixture.From("payments")))
		fixture.Publish(t, store, "orders.dlq", fixture.Several(700)...)
		held := request
		held.Max, held.Approval = 530, true
		a := start(t, all, held)
		if a.Selected != 530 {
			t.Fatalf("%+v", a)
		}
		for _, most := range []int{10, 60, 200} {
			r := request
			r.Max = most
			want := min(most, 170)
			plan, err := all.Plan(t.Context(), r)
			if err != nil || plan.Letters != want || !slices.Contains(plan.LeftOut, campaigns.LeftOut{Why: campaigns.InCampaign, Campaign: a.ID, Letters: 530}) {
				t.Errorf("Max %d: the plan is %d letters, %+v %v", most, plan.Letters, plan.LeftOut, err)
			}
			c, err := all.Start(t.Context(), r)
			if err != nil || c.Selected != want || !slices.Equal(c.LeftOut, plan.LeftOut) {
				t.Fatalf("Max %d: %d letters are selected, %+v %v", most, c.Selected, c.LeftOut, err)
			}
			testkit.Must(all.Cancel(t.Context(), c.ID, act))
		}
		r := request
		r.Seqs, r.Max = []int64{2, 3, 4}, 2 // all of another campaign
		if _, err := all.Start(t.Context(), r); !errors.Is(err, campaigns.ErrNoLetters) {
			t.Error(err)
		}
	})
}
