package campaigns_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var (
	act     = campaigns.Act{By: "ann", Reason: "the customer exists now"}
	request = campaigns.Request{Act: act}
	config  = campaigns.Config{Allow: []string{"orders"}}
	quick   = campaigns.WorkerConfig{Poll: 5 * time.Millisecond, Lease: 30 * time.Second} // letters that lapse under load would be doubled
)

// stored are campaigns on a store with letters.
func stored(t testing.TB, d fixture.Database, c campaigns.Config, some ...*message.Message) (*letters.Store,
	*campaigns.Campaigns) {
	t.Helper()
	store := d.NewStore(t)
	all := open(t, store, c)
	fixture.Publish(t, store, "orders.dlq", some...)
	return store, all
}

// working is what a worker publishes until the test ends.
func working(t testing.TB, all *campaigns.Campaigns) *fixture.Outbox {
	t.Helper()
	out := &fixture.Outbox{}
	run(t, all, out, quick)
	return out
}

func open(t testing.TB, store *letters.Store, c campaigns.Config) *campaigns.Campaigns {
	t.Helper()
	return testkit.Must(campaigns.New(t.Context(), store, c))
}

// run runs a worker until the returned function is called, or the test ends.
func run(t testing.TB, all *campaigns.Campaigns, live message.Publisher, c campaigns.WorkerConfig) (stop func()) {
	t.Helper()
	w := testkit.Must(campaigns.NewWorker(all, live, c))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		testkit.Is(t, testkit.Receive(t, "the worker ends", done), nil)
	})
	t.Cleanup(stop)
	return stop
}

func start(t testing.TB, all *campaigns.Campaigns, r campaigns.Request) campaigns.Campaign {
	t.Helper()
	return testkit.Must(all.Start(t.Context(), r))
}

// reach waits until a campaign is in a state.
func reach(t testing.TB, all *campaigns.Campaigns, id string, state campaigns.State) campaigns.Campaign {
	t.Helper()
	var c campaigns.Campaign
	testkit.Eventually(t, "the campaign is "+string(state), func() bool {
		c = testkit.Must(all.Get(t.Context(), id))
		return c.State == state
	}, func() string { return string(c.State) + " " + c.Why })
	return c
}

func wantIDs(t testing.TB, out *fixture.Outbox, n int) {
	t.Helper()
	ids := out.IDs()
	for id, times := range ids {
		testkit.Check(t, times == 1, "%s was published %d times", id, times)
	}
	testkit.Equal(t, "letters were published", len(ids), n)
}
