package campaigns_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Features O5, V7, decision 17: an outage of the database is a line for each thing that stands when it begins, and one
// when it ends, however often the worker tries.
func TestOutageLines(t *testing.T) {
	d := databases.Postgres
	address := d.Create(t)
	store := fixture.StoreOn(t, d.Open(t, address))
	all := open(t, store, config)
	through, proxy := cutOff(t, d, address)
	const n = 200
	fixture.Publish(t, store, "orders.dlq", fixture.Several(n)...)
	r := request
	r.Concurrency = 4
	c := start(t, all, r)
	cut := make(chan struct{})
	var calls atomic.Int64
	out := &fixture.Outbox{Before: func(string, *message.Message) error {
		if calls.Add(1) == 20 {
			proxy.Cut()
			close(cut)
		}
		return nil
	}}
	log := &testkit.Log{}
	logged := config
	logged.Logger = log
	w := quick.Tuned(0, 10, 0)
	w.Lease, w.Poll = 10*time.Second, 50*time.Millisecond
	run(t, open(t, fixture.StoreOn(t, through), logged), out, w)
	testkit.Receive(t, "the database is away", cut)
	before := proxy.Accepted()
	testkit.Eventually(t, "the worker tries again and again", func() bool { return proxy.Accepted() > before+60 })
	proxy.Heal()
	reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, n)
	began := 0
	for begin, end := range map[string]string{
		"Letters were not marked":                     "Letters are marked again",
		"What became of letters was not written down": "What became of letters is written down again",
		"A campaign stands still":                     "A campaign goes on",
		"Campaigns stand still":                       "Campaigns go on",
	} {
		begins, ends := log.Lines(watermill.ErrorLogLevel, begin), log.Lines(watermill.InfoLogLevel, end)
		began += len(begins)
		if testkit.StandsFor(begins) > 1 || len(begins) != len(ends) {
			t.Errorf("%d lines when it began, and %d when it ended: %v", testkit.StandsFor(begins), len(ends), begins)
		}
	}
	if began < 2 {
		t.Errorf("%d things stood: %v", began, log.Errors())
	}
}
