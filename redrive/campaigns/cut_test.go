package campaigns_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features O5, V7, decision 17: an outage costs no mark, publishes nothing twice, and is a line at begin and end.
func TestDatabaseCut(t *testing.T) {
	for _, d := range []databases.Database{databases.Postgres, databases.MariaDB} {
		for _, concurrency := range []int{1, 4} {
			t.Run(fmt.Sprint(d.Name, "/", concurrency), func(t *testing.T) {
				t.Parallel()
				testDatabaseCut(t, d, concurrency)
			})
		}
	}
}

func testDatabaseCut(t *testing.T, d databases.Database, concurrency int) {
	const n, unmarked = 300, 10
	address := d.Create(t)
	direct := d.Open(t, address)
	store := fixture.StoreOn(t, direct)
	all := open(t, store, config)
	through, proxy := d.Behind(t, address)
	fixture.Publish(t, store, "orders.dlq", fixture.Several(n)...)
	r := request
	r.Concurrency = concurrency
	c := start(t, all, r)
	var calls atomic.Int64
	out := &fixture.Outbox{Before: func(string, *message.Message) error {
		if n := calls.Add(1); n == 40 || n == 150 {
			proxy.Cut()
		}
		return nil
	}}
	w := quick.Tuned(0, unmarked, 0)
	w.Lease, w.Poll = 10*time.Second, 50*time.Millisecond // a claim whose answer was cut off is free after that
	log, logged := &testkit.Log{}, config
	logged.Logger = log
	run(t, open(t, fixture.StoreOn(t, through), logged), out, w)
	most := concurrency
	if concurrency > 1 {
		most += unmarked
	}
	for cuts, at := range []int{40, 150} {
		testkit.Eventually(t, "letters are published without marks", func() bool { return len(out.All()) >= at })
		tries := proxy.Accepted()
		testkit.Eventually(t, "the worker tries again and again", func() bool { return proxy.Accepted() > tries+20 })
		marked := 0
		for before := -1; before != len(out.All()); time.Sleep(300 * time.Millisecond) { // until no more come
			before = len(out.All())
			testkit.NoError(t, direct.QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE status = 'redriven'`).Scan(&marked))
			without := before - marked
			testkit.Check(t, without <= most,
				"cut %d: %d letters are published and not marked, at most %d may be", cuts+1, without, most)
		}
		proxy.Heal()
	}
	c = reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, n)
	fixture.WantCount(t, store, fixture.Status(letters.StatusRedriven), n)
	of := letters.EventFilter{RedriveIDs: []string{c.ID}, Kinds: []letters.EventKind{letters.EventRedriven}, Limit: 1000}
	events := testkit.Must(store.Audit(t.Context(), of))
	testkit.Check(t, len(events) == n && c.Redriven == n, "%d events, %d redriven", len(events), c.Redriven)
	began := 0
	for begin, end := range map[string]string{
		"Letters were not marked": "Letters are marked again",
		"A campaign stands still": "A campaign goes on",
		"Campaigns stand still":   "Campaigns go on",
	} {
		begins, ends := log.Lines(watermill.ErrorLogLevel, begin), log.Lines(watermill.InfoLogLevel, end)
		began += len(begins)
		testkit.Check(t, testkit.StandsFor(begins) <= 2 && len(begins) == len(ends),
			"%d lines when it began, and %d when it ended: %v", testkit.StandsFor(begins), len(ends), begins)
	}
	testkit.Check(t, began >= 2, "%d things stood in two outages", began)
}
