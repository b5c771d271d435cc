package campaigns

import (
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V7, V14: never did more fail than were redriven, and a policy's canary waits until all of it is known.
func TestVerdict(t *testing.T) {
	of := func(redriven int64) judgement { return judgement{failed: 29, heard: 29, redriven: redriven} }
	canary := func(heard int64) judgement {
		return judgement{canary: 10, heard: heard, redriven: 10, anySucceeded: true, waited: time.Hour}
	}
	for name, row := range map[string]struct {
		judgement
		policy string
		at     State
		want   ruling
		why    string
	}{
		"more failed than are counted": {of(26), "", Running, stop, "29 of 29 letters redriven failed again"},
		"too many failed":              {of(40), "", Running, stop, "29 of 40 letters redriven failed again"},
		"few failed":                   {of(60), "", Running, nothing, ""},
		"a person's canary":            {canary(9), "", Canary, goOn, ""},
		"a policy's canary":            {canary(9), "timeouts", Canary, nothing, ""},
		"a policy's, all is heard":     {canary(10), "timeouts", Canary, goOn, ""},
	} {
		row.request = &Request{StopAt: 0.5, StopAfter: 20, CanaryWait: time.Minute, policy: row.policy}
		is, why := row.verdict(row.at)
		testkit.Check(t, is == row.want && (row.why == "" || why == row.why), "%s: %v %q", name, is, why)
	}
}

// Feature V7: a worker does not stop a campaign that a person resumed meanwhile: earlier failures count no more.
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
	testkit.Equal(t, "the campaign is", testkit.Must(w.all.Get(t.Context(), "c")).State, Running)
}

// workerOn returns a worker on a database.
func workerOn(t *testing.T, db *sql.DB) *Worker {
	t.Helper()
	store := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop"}))
	all := testkit.Must(New(t.Context(), store, Config{Allow: []string{"orders"}}))
	return testkit.Must(NewWorker(all, gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), WorkerConfig{}))
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
			testkit.NoError(t, r.listen(t.Context(), read)) // and this one, which found nothing before, writes after it
			c, err := w.all.Get(t.Context(), "c")
			testkit.Check(t, err == nil && c.Succeeded == 3 && c.FailedAgain == 1,
				"%d succeeded, %d failed again, %v", c.Succeeded, c.FailedAgain, err)
			read.Succeeded = 1 // the same if it did find something
		}
		read.Succeeded, read.FailedAgain = 3, 1
		r := &rounds{all: w.all, worker: w, listenAt: make(map[string]time.Time)}
		testkit.NoError(t, r.listen(t.Context(), read))
		c, err := w.all.Get(t.Context(), "c")
		testkit.Check(t, err == nil && c.Succeeded == 0 && c.FailedAgain == 0,
			"the next look finds %d and %d, %v: there are no letters", c.Succeeded, c.FailedAgain, err)
	})
}
