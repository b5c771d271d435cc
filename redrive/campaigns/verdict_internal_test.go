package campaigns

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7: what stops a campaign never says that more letters failed again than were redriven: the worker counts what it
// published later than the receiver hears of it.
func TestVerdictIsOneReading(t *testing.T) {
	j := judgement{failed: 29, heard: 29, redriven: 26, request: &Request{StopAt: 0.5, StopAfter: 20}}
	if v, why := j.verdict(Running); v != stop || why != "29 of 29 letters redriven failed again" {
		t.Error(v, why)
	}
	j.redriven = 40
	if v, why := j.verdict(Running); v != stop || why != "29 of 40 letters redriven failed again" {
		t.Error(v, why)
	}
	j.redriven = 60
	if v, why := j.verdict(Running); v != nothing {
		t.Error(v, why)
	}
}

// Feature V12: what a worker heard before another one heard more does not take its place.
func TestHeardLate(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := New(t.Context(), store, Config{Allow: []string{"orders"}})
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWorker(all, gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), WorkerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		exec := func(statement string, args ...any) {
			t.Helper()
			if _, err := db.Exec(all.db.Statement(statement), args...); err != nil {
				t.Fatal(err)
			}
		}
		exec(`INSERT INTO spillway_campaigns (id, service, state, request, created_at, resume_to, redriven) VALUES ('c', ?, 'running', '{}', 1, '', 10)`, all.service())
		read := Campaign{ID: "c", State: Running, Request: Request{StopAt: 1, StopAfter: 20}}
		exec(`UPDATE spillway_campaigns SET succeeded = 3, failed_again = 1`) // another worker looks, writes
		for range 2 {
			r := &rounds{Worker: w, listenAt: make(map[string]time.Time)}
			if err := r.listen(t.Context(), read); err != nil { // and this one, which found nothing before, writes after it
				t.Fatal(err)
			}
			if c, err := all.Get(t.Context(), "c"); err != nil || c.Succeeded != 3 || c.FailedAgain != 1 {
				t.Errorf("%d succeeded, %d failed again, %v", c.Succeeded, c.FailedAgain, err)
			}
			read.Succeeded = 1 // the same if it did find something
		}
		read.Succeeded, read.FailedAgain = 3, 1
		r := &rounds{Worker: w, listenAt: make(map[string]time.Time)}
		if err := r.listen(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		if c, err := all.Get(t.Context(), "c"); err != nil || c.Succeeded != 0 || c.FailedAgain != 0 {
			t.Errorf("the next look finds %d and %d, %v: there are no letters", c.Succeeded, c.FailedAgain, err)
		}
	})
}
