package campaigns_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V12: at its end a campaign knows which letters succeeded, which failed again, and of which nothing was heard.
func TestVerdict(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store := d.NewStore(t)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(10)...)
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

// Features V7, V12, promise P6, decision 22: a campaign over letters of messages without an id stops itself when too
// many fail again, as one over letters with ids does.
func TestCampaignOfNoIDs(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store := d.NewStore(t)
		all := open(t, store, config)
		waiting := make([]*message.Message, 200)
		for i := range waiting {
			waiting[i] = fixture.Letter("", fmt.Sprintf(`{"n":%d}`, i))
		}
		fixture.Publish(t, store, "orders.dlq", waiting...)
		var published atomic.Int32
		stopped := make(chan struct{})
		defer close(stopped)
		out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error { // the handler fails as before
			if published.Add(1) > 60 { // the campaign is to notice before it is through
				<-stopped
				return fixture.ErrDown
			}
			return store.Publish("orders.dlq", fixture.WithClass(msg))
		}}
		r := request
		c := start(t, all, r)
		run(t, all, out, quick)
		c = reach(t, all, c.ID, campaigns.Paused)
		testkit.Check(t, c.FailedAgain >= campaigns.DefaultStopAfter && c.Redriven <= 60,
			"%d redriven, %d failed again, %d not heard of", c.Redriven, c.FailedAgain, c.NotHeard)
		fixture.WantCount(t, store, fixture.Status(letters.StatusFailedAgain), c.FailedAgain)
		for _, l := range fixture.List(t, store, letters.Filter{RedriveIDs: []string{c.ID}}) {
			testkit.Check(t, l.Redrive.ID == c.ID && l.Redrive.Letter != "" && l.Redrive.Letter != l.Identity,
				"letter %d says that it was %q of %q", l.Seq, l.Redrive.Letter, l.Redrive.ID)
		}
	})
}
