package campaigns_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Feature V7: whatever is called in whatever order, a campaign has the state that the calls lead to, and a call that
// its state does not allow is ErrState and changes nothing.
func TestStates(t *testing.T) {
	random := testkit.Random(t)
	store := fixture.SQLite.NewStore(t)
	all := open(t, store, config)
	fixture.Publish(t, store, "orders.dlq", fixture.Several(1)...)
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
			if now.State != want || allowed != (err == nil) || err != nil && !errors.Is(err, campaigns.ErrState) {
				t.Fatalf("%s of a campaign that is %s: %s, want %s: %v", name, before, now.State, want, err)
			}
		}
		if want != campaigns.Cancelled {
			testkit.Must(all.Cancel(t.Context(), c.ID, bob))
		}
	}
}

func pick(random *rand.Rand, names ...string) string { return names[random.IntN(len(names))] }
