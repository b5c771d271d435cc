package letters_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: old letters are deleted by status, age and cause, on record, once, by instances that run at the same time beside
// traffic. All others stay.
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
	if n, err := stores[0].MarkAll(t.Context(), letters.Filter{}, letters.StatusSucceeded, act); err != nil || n != 902 {
		t.Fatal(n, err)
	}
	if n, err := stores[0].MarkAll(t.Context(), letters.Filter{IDs: []string{"waits"}, Statuses: letters.Statuses()}, letters.StatusWaiting, act); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	succeeded := letters.Filter{Statuses: []letters.Status{letters.StatusSucceeded}, IDs: []string{"leased"}}
	if taken, err := stores[0].Take(t.Context(), succeeded, time.Hour, 1); err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	noise, err := stores[0].Groups(t.Context(), letters.Filter{Statuses: letters.Statuses(), Topics: []string{"orders"}, Description: "noise"})
	if err != nil || len(noise) != 1 {
		t.Fatal(noise, err)
	}
	var instances sync.WaitGroup
	var deleted [2]int
	var logs testkit.Log
	for i, store := range stores {
		retention, err := letters.NewRetention(store, letters.RetentionConfig{Logger: &logs, Rules: []letters.RetentionRule{
			{Statuses: []letters.Status{letters.StatusSucceeded}, OlderThan: 30 * 24 * time.Hour},
			{Statuses: []letters.Status{letters.StatusSucceeded}, OlderThan: 24 * time.Hour, Causes: []string{noise[0].Cause}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		instances.Go(func() {
			n, err := retention.Trim(t.Context())
			if deleted[i] = n; err != nil {
				t.Error(err)
			}
		})
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
	if deleted[0]+deleted[1] != 2*n || logged != 2*n || len(logs.Errors()) > 0 {
		t.Errorf("%v letters are deleted and %d logged, want %d in all: %v", deleted, logged, 2*n, logs.Errors())
	}
	wantCount(t, stores[0], letters.Filter{Statuses: letters.Statuses()}, n+2+30)
	wantCount(t, stores[0], letters.Filter{Causes: []string{noise[0].Cause}, Statuses: letters.Statuses()}, 0)
	wantNumbers(t, db, stores[0])
	purged := 0
	for f := (letters.EventFilter{Kinds: []letters.EventKind{letters.EventPurged}, Limit: letters.MaxLimit}); ; {
		events, err := stores[0].Audit(t.Context(), f)
		if err != nil || len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.By == "" || !strings.HasPrefix(e.Reason, "retention: ") || strings.HasPrefix(e.MessageID, "young") {
				t.Errorf("%+v", e)
			}
		}
		purged, f.After = purged+len(events), events[len(events)-1].Number
	}
	if purged != 2*n {
		t.Errorf("%d are on record", purged)
	}
}

// Feature V9: a router runs a Retention, which begins at once and ends with the router. Wrong rules are refused.
func TestRetention_plugin(t *testing.T) {
	store := newStore(t)
	publish(t, store, "orders.dlq", letter("1", "a"))
	if n, err := store.MarkAll(t.Context(), letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	rules := []letters.RetentionRule{{Statuses: []letters.Status{letters.StatusDiscarded}, OlderThan: time.Hour}}
	retention, err := letters.NewRetention(store, letters.RetentionConfig{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddPlugin(retention.Plugin)
		r.AddConsumerHandler("billing", "orders", pubsub, func(*message.Message) error { return nil })
	})
	eventually(t, "the letter is deleted", func() bool {
		n, err := store.Count(t.Context(), letters.Filter{Statuses: letters.Statuses()})
		return err == nil && n == 0
	})
	for want, config := range map[string]letters.RetentionConfig{
		"Rules is empty":          {},
		"Rules[0].Statuses":       {Rules: []letters.RetentionRule{{OlderThan: time.Hour}}},
		"Rules[0].OlderThan":      {Rules: []letters.RetentionRule{{Statuses: letters.Statuses()}}},
		"unknown status":          {Rules: []letters.RetentionRule{{Statuses: []letters.Status{"old"}, OlderThan: time.Hour}}},
		"Every":                   {Rules: rules, Every: time.Millisecond},
		"101 rules":               {Rules: slices.Repeat(rules, 101)},
		"Filter.Causes lists 501": {Rules: []letters.RetentionRule{{Statuses: letters.Statuses(), OlderThan: 1, Causes: make([]string, 501)}}},
	} {
		if _, err := letters.NewRetention(store, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := letters.NewRetention(nil, letters.RetentionConfig{Rules: rules}); err == nil {
		t.Error("no store")
	}
	var none *letters.Retention
	if none.Run(t.Context()) == nil || none.Plugin(nil) == nil || retention.Plugin(nil) == nil || retention.Run(nilContext) == nil {
		t.Error("a call that can do nothing returns no error")
	}
}

var nilContext context.Context
