package campaigns_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Feature V7: the turns that the database gives out are a rate's, whichever of two workers takes them: the letters of a
// campaign never come faster. How close they come on this machine is logged, not judged.
func TestRate(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		const n, rate = 300, 100
		store := d.NewStore(t)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(n)...)
		r := request
		r.Rate, r.Concurrency = rate, 8
		out := &fixture.Outbox{}
		run(t, all, out, quick)
		run(t, all, out, quick)
		reach(t, all, start(t, all, r).ID, campaigns.Finished)
		wantIDs(t, out, n)
		sent := out.All()
		first, last := sent[0].At, sent[0].At
		for _, p := range sent {
			if p.At.Before(first) {
				first = p.At
			}
			if p.At.After(last) {
				last = p.At
			}
		}
		took := last.Sub(first)
		want := time.Duration(n-1) * time.Second / rate
		t.Logf("%d letters at %d/s took %s: %s", n, rate, took, fmt.Sprintf("%+.2f %%", 100*(want.Seconds()/took.Seconds()-1)))
		if took < want-750*time.Millisecond { // the letters in hand of a worker that stood still come late, and the next ones in time
			t.Errorf("%d letters at %d/s took %s", n, rate, took)
		}
	})
}
