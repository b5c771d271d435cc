package delayed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/settings"
)

// One message that is refused, for its size or otherwise, or cannot be read, does not stop those behind it, also not
// those of its own call.
func TestPoisoned(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		for _, refusal := range []error{errors.New("not this one"), classify.ErrTooLarge, nil} {
			s := newStore(t, d, address)
			fill(t, s, "orders", 100)
			if refusal == nil {
				damage := s.db.Statement(`UPDATE spillway_delayed SET metadata = 'damaged', failures = -5 WHERE id = ?`)
				testkit.Must(s.db.DB().Exec(damage, []byte(numberedID(50))))
			}
			out := &outbox{before: func(_ string, messages []*message.Message) error {
				for _, msg := range messages {
					if msg.UUID == numberedID(50) {
						return refusal
					}
				}
				return nil
			}}
			r := start(t, s, out, RelayConfig{Batch: 30})
			eventually(t, "all others are published", func() bool { return kept(t, s) == 1 })
			r.stop()
			found := counts(out.ids())
			testkit.Check(t, len(found) == 99 && found[numberedID(50)] == 0, "%d are published", len(found))
			var failures int
			err := s.db.DB().QueryRow(`SELECT failures FROM spillway_delayed`).Scan(&failures)
			testkit.Check(t, err == nil && failures != 0, "%v %v", failures, err)
			testkit.Must(s.db.DB().Exec(`DELETE FROM spillway_delayed`))
		}
	})
}

// Promise P4: what a rule alone knows as a refusal for size is given up, and what is no such refusal is not.
func TestGiveUpByRule(t *testing.T) {
	own, other := errors.New("body exceeds the quota"), errors.New("not now")
	classifier := testkit.Must(classify.New(classify.Config{Rules: []classify.Rule{classify.Is(own, classify.Verdict{TooLarge: true})}}))
	s := newStore(t, databases.SQLite, databases.SQLite.Create(t))
	refusals := map[string]error{numberedID(1): own, numberedID(2): other}
	fill(t, s, "orders", 4)
	out := &outbox{before: func(_ string, messages []*message.Message) error {
		if len(messages) > 1 {
			return other
		}
		return refusals[messages[0].UUID]
	}}
	given := make(chan string, 4)
	giveUp := func(_ context.Context, _ string, msg *message.Message, _ error) error { given <- msg.UUID; return nil }
	start(t, s, out, RelayConfig{Shared: settings.Shared{Classifier: classifier}, GiveUp: giveUp})
	eventually(t, "one is left", func() bool { return kept(t, s) == 1 })
	if id := <-given; id != numberedID(1) || len(given) != 0 || len(out.all()) != 2 {
		t.Errorf("given up: %q and %d more; published: %v", id, len(given), out.ids())
	}
}

// A database that fails is asked again, and what was published is deleted before anything else is taken.
func TestDatabaseFails(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		fill(t, s, "orders", 10)
		hide := func(from, to string) {
			var err error
			eventually(t, "the table is renamed", func() bool {
				_, err = s.db.DB().Exec(`ALTER TABLE ` + from + ` RENAME TO ` + to)
				return err == nil
			})
		}
		var once sync.Once
		var before atomic.Int64
		logger := &testkit.Log{}
		out := &outbox{before: func(string, []*message.Message) error {
			once.Do(func() {
				hide("spillway_delayed", "hidden")
				before.Store(int64(len(logger.Errors()))) // of renewals while the statement took its time
			})
			return nil
		}}
		start(t, newStore(t, d, address), out, RelayConfig{Batch: 4, Lease: 200 * time.Millisecond, Shared: settings.Shared{Logger: logger}})
		eventually(t, "the failure is logged", func() bool { return len(logger.Errors()) > 0 })
		time.Sleep(500 * time.Millisecond) // the lease is over
		n := int64(len(logger.Errors())) - before.Load()
		testkit.Check(t, n <= 5, "%d errors are logged", n)
		hide("hidden", "spillway_delayed")
		eventually(t, "nothing is kept", func() bool { return kept(t, s) == 0 })
		wantOnce(t, out.ids(), 10)
	})
}
