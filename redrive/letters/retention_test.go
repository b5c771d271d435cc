package letters_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: instances delete old letters by status, age and cause, once, on record, beside traffic.
func TestRetention(t *testing.T) { onEach(t, testRetention) }

func testRetention(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	db := open()
	stores := []*letters.Store{storeOn(t, db), storeOn(t, open())}
	now := time.Now()
	old := func(days int, description string) func(*poison.Letter) {
		return func(l *poison.Letter) {
			l.Failure.LastFailedAt, l.Failure.Description = now.AddDate(0, 0, -days), description
		}
	}
	const n = 300 // of each kind, more than a transaction deletes
	var batch []*message.Message
	for i := range n {
		batch = append(batch, letter(fmt.Sprint("old-", i), "a", old(40, "disk full")), letter(fmt.Sprint("young-", i), "a", old(20, "disk full")),
			letter(fmt.Sprint("noise-", i), "a", old(2, "noise")))
	}
	publish(t, stores[0], "orders.dlq", batch...)
	publish(t, stores[0], "orders.dlq", letter("waits", "a", old(50, "disk full")), letter("leased", "a", old(50, "disk full")))
	act := letters.Act{By: "ann", Reason: "a test"}
	testkit.Returns(t, 902)(stores[0].MarkAll(t.Context(), letters.Filter{}, letters.StatusSucceeded, act))
	one := letters.Filter{IDs: []string{"waits"}, Statuses: letters.Statuses()}
	testkit.Returns(t, 1)(stores[0].MarkAll(t.Context(), one, letters.StatusWaiting, act))
	succeeded := letters.Filter{Statuses: []letters.Status{letters.StatusSucceeded}, IDs: []string{"leased"}}
	take(t, stores[0], succeeded, 1)
	noise, err := stores[0].Groups(t.Context(), letters.Filter{Statuses: letters.Statuses(), Topics: []string{"orders"}, Description: "noise"})
	testkit.Require(t, err == nil && len(noise) == 1, "%v %v", noise, err)
	var instances sync.WaitGroup
	var seen [2]int
	var logs testkit.Log
	for i, store := range stores {
		ctx, end := context.WithCancel(t.Context())
		retention, err := letters.RetentionOf(store, letters.RetentionConfig{Shared: observe.Shared{Logger: &logs}, Rules: []letters.RetentionRule{
			{Statuses: []letters.Status{letters.StatusSucceeded}, OlderThan: 24 * time.Hour, Causes: []string{noise[0].Cause}},
			{Statuses: []letters.Status{letters.StatusSucceeded}, OlderThan: 30 * 24 * time.Hour},
		}, OnRun: func(_ context.Context, n int, err error) {
			seen[i] = n
			testkit.Is(t, err, nil)
			end()
		}})
		testkit.NoError(t, err)
		instances.Go(func() { retention.Run(ctx) })
	}
	instances.Go(func() {
		for i := range 30 {
			publish(t, stores[1], "orders.dlq", letter(fmt.Sprint("live-", i), "a"))
		}
	})
	instances.Wait()
	logged := 0
	for _, line := range logs.Lines(watermill.InfoLogLevel, "Deleted letters") {
		logged += line.Fields["letters"].(int)
	}
	testkit.Check(t, seen[0]+seen[1] == 2*n && logged == 2*n && len(logs.Errors()) <= 0,
		"%v letters are deleted and %d logged, want %d in all: %v", seen, logged, 2*n, logs.Errors())
	wantCount(t, stores[0], letters.Filter{Statuses: letters.Statuses()}, n+2+30)
	wantCount(t, stores[0], letters.Filter{Causes: []string{noise[0].Cause}, Statuses: letters.Statuses()}, 0)
	wantNumbers(t, db, stores[0])
	var purged, ours int
	testkit.NoError(t, db.QueryRow(`SELECT COUNT(*), COUNT(CASE WHEN actor <> '' AND reason LIKE 'retention: %' AND
message NOT LIKE 'young%' THEN 1 END) FROM spillway_letter_events WHERE kind = 'purged'`).Scan(&purged, &ours))
	testkit.Check(t, purged == 2*n && ours == 2*n, "%d events, %d as they should be", purged, ours)
}

// Features V9, D14: a router runs a Retention, which begins at once, says when it fails, and looks again.
func TestRetention_plugin(t *testing.T) {
	store := newStore(t)
	publish(t, store, "orders.dlq", letter("1", "a"))
	testkit.Returns(t, 1)(store.MarkAll(t.Context(), letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}))
	rules := []letters.RetentionRule{{Statuses: []letters.Status{letters.StatusDiscarded}, OlderThan: time.Hour}}
	mustExec(t, hidden.Of(store).DB(), `ALTER TABLE spillway_dead_letters RENAME TO elsewhere`)
	var looks, failed atomic.Int64
	retention, err := letters.RetentionOf(store, letters.RetentionConfig{Rules: rules,
		OnRun: func(_ context.Context, _ int, err error) {
			if looks.Add(1); err != nil {
				failed.Add(1)
			}
		}})
	testkit.NoError(t, err)
	retention.Often(10 * time.Millisecond)
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddPlugin(retention.Plugin)
		r.AddConsumerHandler("billing", "orders", pubsub, func(*message.Message) error { return nil })
	})
	eventually(t, "a look fails", func() bool { return failed.Load() > 0 })
	mustExec(t, hidden.Of(store).DB(), `ALTER TABLE elsewhere RENAME TO spillway_dead_letters`)
	eventually(t, "the letter is deleted", func() bool {
		n, err := store.Count(t.Context(), letters.Filter{Statuses: letters.Statuses()})
		return err == nil && n == 0
	})
	eventually(t, "it looks again", func() bool { return looks.Load() > failed.Load()+2 })
	many := letters.RetentionRule{Keep: true, Causes: make([]string, 500)}
	for want, config := range map[string]letters.RetentionConfig{
		"Rules is empty":          {},
		"Rules[0].Statuses":       {Rules: []letters.RetentionRule{{OlderThan: time.Hour}}},
		"Rules[0].OlderThan":      {Rules: []letters.RetentionRule{{Statuses: letters.Statuses()}}},
		"unknown status":          {Rules: []letters.RetentionRule{{Statuses: []letters.Status{"old"}, OlderThan: time.Hour}}},
		"and Keep is set":         {Rules: []letters.RetentionRule{{Keep: true, OlderThan: time.Hour}}},
		"list 5003 values":        {Rules: []letters.RetentionRule{many, many, many, many, many, many, many, many, many, many, rules[0], rules[0], rules[0]}},
		"101 rules":               {Rules: slices.Repeat(rules, 101)},
		"Filter.Causes lists 501": {Rules: []letters.RetentionRule{{Statuses: letters.Statuses(), OlderThan: 1, Causes: make([]string, 501)}}},
	} {
		testkit.Says(t, testkit.Err(letters.NewRetention(store, config)), want)
	}
	testkit.Check(t, testkit.Err(letters.NewRetention(nil, letters.RetentionConfig{Rules: rules})) != nil, "no store")
	testkit.Check(t, testkit.Must(letters.NewRetention(store, letters.RetentionConfig{Rules: rules}))(nil) != nil,
		"no router")
}

// Feature D14: the first rule that a letter matches decides. Due says before what Trim deletes.
func TestRetention_firstRule(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	of := func(class classify.Class, reason string, days int) func(*poison.Letter) {
		return func(l *poison.Letter) {
			l.Failure.Class, l.Failure.Reason, l.Failure.LastFailedAt = class, reason, time.Now().AddDate(0, 0, -days)
		}
	}
	publish(t, store, "orders.dlq",
		letter("fraud", "a", of(classify.ClassPermanent, "fraud", 400)),
		letter("permanent-young", "a", of(classify.ClassPermanent, "declined", 20)),
		letter("permanent-old", "a", of(classify.ClassPermanent, "declined", 100)),
		letter("transient-young", "a", of(classify.ClassTransient, "timeout", 2)),
		letter("transient-old", "a", of(classify.ClassTransient, "timeout", 8)),
		letter("invalid", "a", of(classify.ClassInvalid, "schema", 400)),
		letter("waits", "a", of(classify.ClassTransient, "timeout", 400)))
	act := letters.Act{By: "ann", Reason: "a test"}
	testkit.Returns(t, 7)(store.MarkAll(ctx, letters.Filter{Reasons: []string{"fraud", "declined", "timeout", "schema"}}, letters.StatusDiscarded, act))
	one := letters.Filter{IDs: []string{"waits"}, Statuses: letters.Statuses()}
	testkit.Returns(t, 1)(store.MarkAll(ctx, one, letters.StatusWaiting, act))
	discarded := []letters.Status{letters.StatusDiscarded}
	const day = 24 * time.Hour
	retention, err := letters.RetentionOf(store, letters.RetentionConfig{Rules: []letters.RetentionRule{
		{Keep: true, Reasons: []string{"fraud"}},
		{Statuses: discarded, Classes: []classify.Class{classify.ClassPermanent}, OlderThan: 90 * day},
		{Statuses: discarded, Classes: []classify.Class{classify.ClassTransient, classify.ClassPermanent}, OlderThan: 7 * day},
		{Keep: true, Statuses: []letters.Status{letters.StatusDiscarded}, Classes: []classify.Class{classify.ClassInvalid}},
		{Statuses: letters.Statuses(), Classes: []classify.Class{classify.ClassInvalid}, OlderThan: day},
	}})
	testkit.NoError(t, err)
	want := []int{0, 1, 1, 0, 0}
	for _, want := range [][]int{want, make([]int, 5)} { // the second look finds nothing
		deleted, err := retention.Trim(ctx)
		testkit.Require(t, err == nil && slices.Equal(deleted, want), "deleted are %v, %v, want %v", deleted, err, want)
	}
	wantCount(t, store, letters.Filter{Statuses: letters.Statuses()}, 5)
	wantCount(t, store, letters.Filter{Statuses: letters.Statuses(), IDs: []string{"permanent-old", "transient-old"}}, 0)
	events, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventPurged}})
	testkit.Check(t, err == nil && len(events) == 2 && events[0].By != "" && strings.HasPrefix(events[0].Reason, "retention: "),
		"on record are %+v, %v", events, err)
}
