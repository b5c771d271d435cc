package campaigns_test

import (
	"errors"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V7, V9, promise P6: a letter that failed again is left out while a newer letter of its message waits, and
// every face says so: both would publish the message twice. When the newer one was given up, the older can be redriven.
func TestNewerWaits(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Letter("1", "{}"), fixture.Letter("2", "{}"))
		testkit.Returns(t, 2)(store.MarkAll(t.Context(), letters.Filter{}, letters.StatusRedriven, letters.Act{By: "ann"}))
		testkit.Returns(t, 2)(store.MarkAll(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusRedriven}},
			letters.StatusFailedAgain, letters.Act{By: "ann"}))
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("1", `{"again":1}`))
		r := request
		r.Filter = letters.Filter{Statuses: []letters.Status{letters.StatusFailedAgain, letters.StatusWaiting}}
		leftOut := func(out []campaigns.LeftOut, n int) bool {
			return n == 0 && len(out) == 0 || n > 0 && len(out) == 1 && out[0].Why == campaigns.NewerWaits && out[0].Letters == n
		}
		plan, err := all.Plan(t.Context(), r)
		testkit.Check(t, err == nil && plan.Letters == 2 && leftOut(plan.LeftOut, 1), "the plan: %+v, %v", plan, err)
		one := request
		one.Seqs, one.Filter = []int64{1}, letters.Filter{Statuses: []letters.Status{letters.StatusFailedAgain}}
		_, err = all.Start(t.Context(), one)
		testkit.Check(t, errors.Is(err, campaigns.ErrNoLetters), "the older alone: %v", err)
		testkit.Says(t, err, "a newer letter of the message waits")

		testkit.Returns(t, 1)(store.MarkAll(t.Context(), letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}))
		c := start(t, all, one)
		testkit.Check(t, c.Selected == 1 && leftOut(c.LeftOut, 0), "the newer one was given up: %+v", c)
		c = start(t, all, r)
		testkit.Check(t, c.Selected == 1, "the other one: %+v", c)
	})
}
