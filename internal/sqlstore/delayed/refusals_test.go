package delayed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe"
)

// One message that is refused, for its size or otherwise, or cannot be read, does not stop those behind it, also not
// those of its own call.
func TestPoisoned(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		for _, refusal := range []error{errors.New("not this one"), classify.ErrTooLarge, nil} {
			s := openStore(t, d, address)
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
	s := openStore(t, databases.SQLite, databases.SQLite.Create(t))
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
	start(t, s, out, RelayConfig{Shared: observe.Shared{Classifier: classifier}, GiveUp: giveUp})
	eventually(t, "one is left", func() bool { return kept(t, s) == 1 })
	if id := <-given; id != numberedID(1) || len(given) != 0 || len(out.all()) != 2 {
		t.Errorf("given up: %q and %d more; published: %v", id, len(given), out.ids())
	}
}

// A database that fails is asked again, and what was published is deleted before anything else is taken.
func TestDatabaseFails(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
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
		start(t, openStore(t, d, address), out, RelayConfig{Batch: 4, Lease: 200 * time.Millisecond, Shared: observe.Shared{Logger: logger}})
		eventually(t, "the failure is logged", func() bool { return len(logger.Errors()) > 0 })
		time.Sleep(500 * time.Millisecond) // the lease is over
		n := int64(len(logger.Errors())) - before.Load()
		testkit.Check(t, n <= 5, "%d errors are logged", n)
		hide("hidden", "spillway_delayed")
		eventually(t, "nothing is kept", func() bool { return kept(t, s) == 0 })
		wantOnce(t, out.ids(), 10)
	})
}

// Feature R8, promise P4: what waits for a topic that refuses, in whatever way, is passed over by all relays, and not
// written again and again. Messages of other topics that come after it are published meanwhile. When the topic takes
// messages again the relays share the work: all are published, once.
func TestRefusedIsPassedOver(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		const n, relays, batch = 3000, 3, 20
		fill(t, s, "bad", n)
		fill(t, s, "worse", 100) // behind it
		fill(t, s, "worst", 100)
		var down atomic.Bool
		down.Store(true)
		var bad, worse, worst atomic.Int64 // tries
		out := &outbox{before: func(topic string, _ []*message.Message) error {
			switch {
			case !down.Load() || topic == "good":
				return nil
			case topic == "worse":
				worse.Add(1)
				panic("\x00")
			case topic == "worst":
				worst.Add(1)
				runtime.Goexit()
			}
			bad.Add(1)
			return errDown
		}}
		begun := time.Now()
		for range relays {
			start(t, openStore(t, d, address), out, RelayConfig{Batch: batch, Poll: 20 * time.Millisecond, Lease: time.Minute})
		}
		eventually(t, "all topics were tried more often than it takes to believe that they are down", func() bool {
			return min(bad.Load(), worse.Load(), worst.Load()) > relays*(maxRefusals+1)
		})
		for i := range 20 {
			put(t, s, "good", newMessage(fmt.Sprint("good-", i)), time.Duration(i)*5*time.Millisecond)
		}
		eventually(t, "the good ones are published", func() bool { return len(out.all()) == 20 })
		var written int
		testkit.NoError(t, s.db.DB().QueryRow(`SELECT COUNT(*) FROM spillway_delayed WHERE ready_at <> due_at`).Scan(&written))
		testkit.Check(t, written <= 10*relays*batch, "%d of %d rows were written again", written, n)
		tries, most := max(bad.Load(), worse.Load(), worst.Load()), relays*(12+2*int64(time.Since(begun)/maxTopicWait))
		testkit.Check(t, tries <= most, "%d tries in vain of a topic, at most %d", tries, most)
		down.Store(false)
		eventually(t, "all are published", func() bool { return kept(t, s) == 0 })
		different := map[string]bool{}
		for _, p := range out.all() {
			different[p.topic+" "+p.msg.UUID] = true
		}
		testkit.Equal(t, "messages are published", len(out.all()), n+100+100+20)
		testkit.Equal(t, "different ones", len(different), n+100+100+20)
	})
}

// A topic that refuses is left alone for longer and longer, and what is remembered of topics is bounded.
func TestTopics(t *testing.T) {
	all, now, last := topics{}, time.Now(), time.Duration(0)
	for i := range 42 {
		all.refused("a", 1, now)
		wait := max(0, all["a"].until.Sub(now))
		testkit.Check(t, wait <= maxTopicWait && (i < 2 && wait == 0 || i >= 2 && (wait > last || i > 9) &&
			wait >= firstTopicWait/2),
			"after %d refusals: %s", i+1, wait)
		last = wait
	}
	passed, in := all.passed(now)
	testkit.Check(t, slices.Equal(passed, []string{"a"}) && in == last && all.waits("a", now), "%v, %s", passed, in)
	passed, _ = all.passed(now.Add(last))
	testkit.Check(t, len(passed) == 0 && !all.waits("a", now.Add(last)), "it is passed over for ever")
	all.took("a")
	testkit.Check(t, len(all) == 0 && all.atOnce("a", 10) == 10, "what it took is not believed")
	for i := range 3*maxTopics + 1 {
		all.refused(fmt.Sprint(i), 2, now)
		testkit.Check(t, len(all) <= maxTopics, "%d are remembered", len(all))
	}
}
