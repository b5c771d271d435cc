package campaigns

import (
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature V7: what stops a campaign never says that more letters failed again than were redriven: the worker counts
// what it published later than the receiver hears of it.
func TestVerdictIsOneReading(t *testing.T) {
	j := judgement{failed: 29, heard: 29, redriven: 26, request: &Request{StopAt: 0.5, StopAfter: 20}}
	v, why := j.verdict(Running)
	testkit.Check(t, v == stop && why == "29 of 29 letters redriven failed again", "%v %v", v, why)
	j.redriven = 40
	v, why = j.verdict(Running)
	testkit.Check(t, v == stop && why == "29 of 40 letters redriven failed again", "%v %v", v, why)
	j.redriven = 60
	v, why = j.verdict(Running)
	testkit.Check(t, v == nothing, "%v %v", v, why)
}

// Feature V14: the canary of a policy is not over because time has passed: all of it must be heard of.
func TestCanaryOfPolicy(t *testing.T) {
	j := judgement{canary: 10, heard: 9, redriven: 10, anySucceeded: true, waited: time.Hour, request: &Request{StopAt: 0.2, CanaryWait: time.Minute}}
	v, _ := j.verdict(Canary)
	testkit.Check(t, v == goOn, "the canary of a person waits for longer than CanaryWait")
	j.request.policy = "timeouts"
	v, _ = j.verdict(Canary)
	testkit.Check(t, v == nothing, "the canary of a policy is over with 9 of 10 letters")
	j.heard = 10
	v, _ = j.verdict(Canary)
	testkit.Check(t, v == goOn, "the canary of a policy does not end")
}

// Feature V7: a worker that is about to stop a campaign does not stop it after a person has resumed it meanwhile: the
// failures before Resume count no more.
func TestJudgeAfterResume(t *testing.T) {
	db := databases.Postgres.New(t)
	w := workerOn(t, db)
	exec := func(db interface {
		Exec(string, ...any) (sql.Result, error)
	}, statement string, args ...any) {
		t.Helper()
		testkit.Must(db.Exec(w.all.db.Statement(statement), args...))
	}
	exec(db, `INSERT INTO spillway_campaigns (id, service, state, request, created_at, resume_to, redriven, failed_again) VALUES ('c', ?, 'running', '{}', 1, '', 30, 30)`, w.all.service())
	person := testkit.Must(db.Begin())
	defer func() { _ = person.Rollback() }()
	exec(person, `UPDATE spillway_campaigns SET heard_before = 30, failed_before = 30, redriven_before = 30`) // another worker stopped it, and it was resumed
	judged := make(chan error, 1)
	go func() {
		judged <- w.all.write(t.Context(), func(tx *sql.Tx) error {
			return (&rounds{all: w.all, worker: w}).judge(t.Context(), tx, Campaign{ID: "c", Request: Request{StopAt: 0.5, StopAfter: 20}})
		})
	}()
	testkit.Eventually(t, "the worker waits", func() bool {
		n := 0
		err := db.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%spillway_campaigns%' AND datname = current_database()`).Scan(&n)
		return err == nil && n > 0
	})
	testkit.NoError(t, person.Commit())
	testkit.NoError(t, testkit.Receive(t, "it is judged", judged))
	c, err := w.all.Get(t.Context(), "c")
	testkit.Check(t, err == nil && c.State == Running, "the campaign is %s: %s, %v", c.State, c.Why, err)
}

// workerOn returns a worker on a database.
func workerOn(t *testing.T, db *sql.DB) *Worker {
	t.Helper()
	store := testkit.Must(letters.NewStore(t.Context(), db, settings.Shared{Service: "shop"}))
	all := testkit.Must(New(t.Context(), store, Config{Allow: []string{"orders"}}))
	w := testkit.Must(NewWorker(all, gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), WorkerConfig{}))
	return w
}

// Feature V12: what a worker heard before another one heard more does not take its place.
func TestHeardLate(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		w := workerOn(t, db)
		exec := func(statement string, args ...any) {
			t.Helper()
			testkit.Must(db.Exec(w.all.db.Statement(statement), args...))
		}
		exec(`INSERT INTO spillway_campaigns (id, service, state, request, created_at, resume_to, redriven) VALUES ('c', ?, 'running', '{}', 1, '', 10)`, w.all.service())
		read := Campaign{ID: "c", State: Running, Request: Request{StopAt: 1, StopAfter: 20}}
		exec(`UPDATE spillway_campaigns SET succeeded = 3, failed_again = 1`) // another worker looks, writes
		for range 2 {
			r := &rounds{all: w.all, worker: w, listenAt: make(map[string]time.Time)}
			if err := r.listen(t.Context(), read); err != nil { // and this one, which found nothing before, writes after it
				t.Fatal(err)
			}
			if c, err := w.all.Get(t.Context(), "c"); err != nil || c.Succeeded != 3 || c.FailedAgain != 1 {
				t.Errorf("%d succeeded, %d failed again, %v", c.Succeeded, c.FailedAgain, err)
			}
			read.Succeeded = 1 // the same if it did find something
		}
		read.Succeeded, read.FailedAgain = 3, 1
		r := &rounds{all: w.all, worker: w, listenAt: make(map[string]time.Time)}
		testkit.NoError(t, r.listen(t.Context(), read))
		if c, err := w.all.Get(t.Context(), "c"); err != nil || c.Succeeded != 0 || c.FailedAgain != 0 {
			t.Errorf("the next look finds %d and %d, %v: there are no letters", c.Succeeded, c.FailedAgain, err)
		}
	})
}
