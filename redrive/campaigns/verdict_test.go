package campaigns_test

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V12: at its end a campaign knows which letters succeeded, which failed again, and of which nothing was heard.
func TestVerdict(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Several(10)...)
		out := failing(t, store, func(id string) bool { return id == "id-8" || id == "id-9" })
		run(t, all, out, quick)
		c := reach(t, all, start(t, all, request).ID, campaigns.Finished)
		n, err := store.MarkAll(t.Context(), letters.Filter{IDs: []string{"id-0", "id-1", "id-2", "id-3", "id-4"},
			Statuses: []letters.Status{letters.StatusRedriven}}, letters.StatusSucceeded, letters.Act{By: "billing"})
		testkit.Require(t, err == nil && n == 5, "%v %v", n, err)
		testkit.Eventually(t, "all is heard", func() bool {
			c, err = all.Get(t.Context(), c.ID)
			return err == nil && c.Succeeded == 5 && c.FailedAgain == 2 && c.NotHeard == 3
		})
	})
}
