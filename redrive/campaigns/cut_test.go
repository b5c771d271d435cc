package campaigns_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: the database is gone between a publish and its mark. No more letters are published than may be without a
// mark. When the database is back they are marked, and none is published twice.
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
	through, proxy := cutOff(t, d, address)
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
	run(t, open(t, fixture.StoreOn(t, through), config), out, w)
	most := concurrency
	if concurrency > 1 {
		most += unmarked
	}
	for cuts, at := range []int{40, 150} {
		testkit.Eventually(t, "letters are published without marks", func() bool { return len(out.All()) >= at })
		marked := 0
		for before := -1; before != len(out.All()); time.Sleep(300 * time.Millisecond) { // until no more come
			before = len(out.All())
			testkit.NoError(t, direct.QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE status = 'redriven'`).Scan(&marked))
			if without := before - marked; without > most {
				t.Errorf("cut %d: %d letters are published and not marked, at most %d may be", cuts+1, without, most)
			}
		}
		proxy.Heal()
	}
	c = reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, n)
	fixture.WantCount(t, store, fixture.Status(letters.StatusRedriven), n)
	events, err := store.Audit(t.Context(), letters.EventFilter{RedriveIDs: []string{c.ID}, Kinds: []letters.EventKind{letters.EventRedriven}, Limit: 1000})
	testkit.Check(t, err == nil && len(events) == n && c.Redriven == n,
		"%d events, %v, %d redriven", len(events), err, c.Redriven)
}

// cutOff opens a database through a proxy.
func cutOff(t *testing.T, d databases.Database, address string) (*sql.DB, *faultproxy.Proxy) {
	var server string
	var over func(proxy string) string
	if d.Name == "mariadb" {
		at := testkit.Must(mysql.ParseDSN(address))
		server, over = at.Addr, func(proxy string) string { at.Addr = proxy; return at.FormatDSN() }
	} else {
		at := testkit.Must(url.Parse(address))
		server, over = at.Host, func(proxy string) string { at.Host = proxy; return at.String() }
	}
	proxy := testkit.Must(faultproxy.New(server))
	t.Cleanup(proxy.Close)
	return d.Open(t, over(proxy.Addr())), proxy
}

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
		testkit.Check(t, testkit.StandsFor(begins) <= 1 && len(begins) == len(ends),
			"%d lines when it began, and %d when it ended: %v", testkit.StandsFor(begins), len(ends), begins)
	}
	if began < 2 {
		t.Errorf("%d things stood: %v", began, log.Errors())
	}
}
