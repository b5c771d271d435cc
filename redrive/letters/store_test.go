package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: what is published is there, whole, and stays there over a restart.
func TestStore_publishAndList(t *testing.T) { onEach(t, testStore_publishAndList) }

func testStore_publishAndList(t *testing.T, on database) {
	open := on.Create(t)
	first, err := letters.NewStore(t.Context(), open(), letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, first, "orders.dlq", letter("1", `{"n":1}`), letter("2", `{"n":2}`, from("refunds")))
	publish(t, first, "orders.dlq")

	store, err := letters.NewStore(t.Context(), open(), letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	entries := list(t, store, letters.Filter{})
	if len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	e := entries[0]
	if e.Topic != "orders.dlq" || e.Letter.Topic != "orders.dlq" || e.Status != letters.StatusWaiting || e.Seen != 1 ||
		time.Since(e.StoredAt) > time.Minute || !e.Marked.At.IsZero() {
		t.Errorf("entry %+v", e)
	}
	want, _ := poison.Decode(letter("1", `{"n":1}`))
	if got := e.Letter; got.Failure.Description != want.Failure.Description || !got.Failure.FirstFailedAt.Equal(fixture.FailedAt) ||
		got.Origin.Topic != "orders" || got.Origin.Handler != "billing" || string(got.Original.Payload) != `{"n":1}` ||
		!maps.Equal(got.Original.Metadata, want.Original.Metadata) {
		t.Errorf("letter %+v", got)
	}
}

// Feature V5, V9: each field of a filter chooses by itself, and pages follow one another.
func TestStore_filter(t *testing.T) { onEach(t, testStore_filter) }

func testStore_filter(t *testing.T, on database) {
	store := on.NewStore(t)
	other := func(l *poison.Letter) {
		l.Origin.Topic, l.Origin.Handler = "refunds", "mailer"
		l.Failure.Class, l.Failure.Reason, l.Failure.StackHash = classify.ClassInvalid, "panic", "def"
		l.Failure.LastFailedAt = fixture.FailedAt.Add(time.Hour)
		l.Failure.Type, l.Failure.Description = "*mail.Error", "mailbox\x00 of \xff100%_ is full"
		l.Redrive = poison.Redrive{Count: 1, ID: "drain-7"}
	}
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	publish(t, store, "refunds.dlq", letter("3", "c", other))
	for name, f := range map[string]letters.Filter{
		"Topics":           {Topics: []string{"refunds", "nothing"}},
		"DeadLetterTopics": {DeadLetterTopics: []string{"refunds.dlq"}},
		"Handlers":         {Handlers: []string{"mailer"}},
		"Classes":          {Classes: []classify.Class{classify.ClassInvalid}},
		"Reasons":          {Reasons: []string{"panic"}},
		"StackHash":        {StackHash: "def"},
		"IDs":              {IDs: []string{"3", "4"}},
		"Since":            {Since: fixture.FailedAt.Add(time.Hour)},
		"After":            {After: 2},
		"Types":            {Types: []string{"*mail.Error"}},
		"Description":      {Description: "00%_ is"},
		"RedriveIDs":       {RedriveIDs: []string{"drain-7", "drain-8"}},
	} {
		if entries := list(t, store, f); len(entries) != 1 || entries[0].Letter.Original.UUID != "3" {
			t.Errorf("%s: %d entries", name, len(entries))
		}
		wantCount(t, store, f, 1)
	}
	wantCount(t, store, letters.Filter{Until: fixture.FailedAt.Add(time.Hour)}, 2)
	wantCount(t, store, letters.Filter{MaxSeq: 2, Limit: 1}, 2)
	wantCount(t, store, letters.Filter{Topics: []string{"orders' OR 1=1 --"}}, 0)
	wantCount(t, store, letters.Filter{Description: "FULL"}, 0)
	wantCount(t, store, letters.Filter{Causes: []string{"unknown"}}, 0)
	wantCount(t, store, status(letters.StatusRedriven), 0)
	var ids []string
	for f := (letters.Filter{Limit: 2}); ; {
		page := list(t, store, f)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			ids = append(ids, e.Letter.Original.UUID)
		}
		f.After = page[len(page)-1].Seq
	}
	if !slices.Equal(ids, []string{"1", "2", "3"}) {
		t.Errorf("pages hold %v", ids)
	}
	for field, f := range map[string]letters.Filter{
		"Filter.Limit":    {Limit: letters.MaxLimit + 1},
		"Filter.After":    {After: -1},
		"Filter.Statuses": {Statuses: []letters.Status{"gone"}},
		"Filter.IDs":      {IDs: make([]string, 501)},
	} {
		if _, err := store.List(t.Context(), f); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Feature V9: letters of one cause are one group, the largest first.
func TestStore_groups(t *testing.T) { onEach(t, testStore_groups) }

func testStore_groups(t *testing.T, on database) {
	store := on.NewStore(t)
	later := func(l *poison.Letter) { l.Failure.LastFailedAt = fixture.FailedAt.Add(time.Hour) }
	hostile := "han\x00dler\xff"
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b", later), letter("3", "c"))
	publish(t, store, "orders.dlq", letter("4", "d", func(l *poison.Letter) { l.Origin.Handler = hostile }))
	groups, err := store.Groups(t.Context(), letters.Filter{})
	if err != nil || len(groups) != 2 {
		t.Fatalf("%+v, %v", groups, err)
	}
	want := letters.Group{
		DeadLetterTopic: "orders.dlq", Topic: "orders", Handler: "billing", Class: classify.ClassPermanent,
		Reason: "no_such_customer", Type: "*shop.Error", StackHash: "abc",
		Count: 3, FirstFailedAt: fixture.FailedAt, LastFailedAt: fixture.FailedAt.Add(time.Hour), Example: 3, Description: "customer 3 is unknown",
	}
	if want.Cause = groups[0].Cause; groups[0] != want {
		t.Errorf("got  %+v\nwant %+v", groups[0], want)
	}
	if groups[1].Handler != hostile || groups[1].Count != 1 {
		t.Errorf("%+v", groups[1])
	}
	for _, g := range groups {
		wantCount(t, store, g.Filter(), g.Count)
	}
}

// Feature V9, decision 12: a letter that arrives again is one row, with the latest failure.
func TestStore_sameLetterTwice(t *testing.T) { onEach(t, testStore_sameLetterTwice) }

func testStore_sameLetterTwice(t *testing.T, on database) {
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", letter("1", "a"), letter("1", "a"))
	publish(t, store, "orders.invalid", letter("1", "a", func(l *poison.Letter) { l.Failure.Reason = "later" }))
	entries := list(t, store, letters.Filter{Reasons: []string{"later"}})
	if len(entries) != 1 || entries[0].Seen != 3 || entries[0].Letter.Failure.Reason != "later" || entries[0].Topic != "orders.invalid" {
		t.Fatalf("%+v", entries)
	}
	wantCount(t, store, letters.Filter{}, 1)
}

// Promise P1, decision 12: what is not surely the same letter is a letter of its own.
func TestStore_othersAreNeverMerged(t *testing.T) { onEach(t, testStore_othersAreNeverMerged) }

func testStore_othersAreNeverMerged(t *testing.T, on database) {
	store := on.NewStore(t)
	base := letter("1", "a")
	different := []*message.Message{
		base, letter("2", "a"), letter("1", "b"), letter("1", "a", from("refunds")), letter("1", "a", redrivenTimes(1)),
		letter("1", "a", func(l *poison.Letter) { l.Origin.Handler = "mailer" }),
		letter("1", "a", func(l *poison.Letter) { l.Origin.ConsumerGroup = "g" }),
		letter("", "a"), letter("", "a"), letter("", "a"),
		message.NewMessage("1", []byte("a")), // no letter at all
	}
	publish(t, store, "orders.dlq", different...)
	wantCount(t, store, letters.Filter{}, len(different))
	publish(t, store, "other.dlq", message.NewMessage("1", []byte("a")))
	wantCount(t, store, letters.Filter{}, len(different)+1)
}

// Feature V9: leases are exclusive, end with Mark or Release, and are proven by their token.
func TestStore_takeMarkRelease(t *testing.T) { onEach(t, testStore_takeMarkRelease) }

func testStore_takeMarkRelease(t *testing.T, on database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", several(3)...)
	taken, err := store.Take(ctx, letters.Filter{}, time.Hour, 2)
	if err != nil || len(taken) != 2 || taken[0].Letter.Original.UUID != "id-0" || time.Until(taken[0].Until) < 59*time.Minute {
		t.Fatalf("%+v, %v", taken, err)
	}
	rest, err := store.Take(ctx, letters.Filter{}, time.Hour, 10)
	if err != nil || len(rest) != 1 || rest[0].Token == taken[0].Token {
		t.Fatalf("%+v, %v", rest, err)
	}
	if err := store.Mark(ctx, taken[0], letters.StatusDiscarded, letters.Marked{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	for name, lost := range map[string]letters.Taken{"marked": taken[0], "forged": {Letter: taken[1].Letter, Token: "x"}, "empty": {Letter: taken[0].Letter}} {
		if err := store.Mark(ctx, lost, letters.StatusRedriven, letters.Marked{}); !errors.Is(err, letters.ErrLeaseLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := store.Mark(ctx, taken[1], "gone", letters.Marked{}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v", err)
	}
	if e := list(t, store, status(letters.StatusDiscarded)); len(e) != 1 || e[0].Marked.By != "ann" || time.Since(e[0].Marked.At) > time.Minute {
		t.Errorf("%+v", e)
	}
	if err := store.Release(ctx, append(rest, taken...)...); err != nil {
		t.Fatal(err)
	}
	if again, err := store.Take(ctx, letters.Filter{}, time.Hour, 10); err != nil || len(again) != 2 {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []func() error{
		func() error { _, err := store.Take(ctx, letters.Filter{}, 0, 1); return err },
		func() error { _, err := store.Take(ctx, letters.Filter{}, time.Second, 0); return err },
	} {
		if bad() == nil {
			t.Error("a take of nothing is an error")
		}
	}
}

// Decision 12: an expired lease is free for the next, and whoever lost it cannot mark any more.
func TestStore_leaseExpires(t *testing.T) { onEach(t, testStore_leaseExpires) }

func testStore_leaseExpires(t *testing.T, on database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"))
	first, err := store.Take(ctx, letters.Filter{}, 20*time.Millisecond, 1)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	var second []letters.Taken
	eventually(t, "the expired lease is taken over", func() bool {
		second, err = store.Take(ctx, letters.Filter{}, time.Hour, 1)
		return err != nil || len(second) == 1
	})
	if err != nil || time.Now().Before(first[0].Until) {
		t.Fatalf("taken over too early, or %v", err)
	}
	if err := store.Mark(ctx, first[0], letters.StatusRedriven, letters.Marked{}); !errors.Is(err, letters.ErrLeaseLost) {
		t.Errorf("%v", err)
	}
	if err := store.Mark(ctx, second[0], letters.StatusRedriven, letters.Marked{}); err != nil {
		t.Error(err)
	}
}

// Promise P1: a letter that arrives again after it was redriven or discarded waits again, and one that arrives while it
// is worked on is not swallowed by the mark.
func TestStore_arrivesAgain(t *testing.T) { onEach(t, testStore_arrivesAgain) }

func testStore_arrivesAgain(t *testing.T, on database) {
	for _, s := range []letters.Status{letters.StatusRedriven, letters.StatusDiscarded, letters.StatusQuarantined, letters.StatusRefused} {
		store, ctx := on.NewStore(t), t.Context()
		publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
		taken, err := store.Take(ctx, letters.Filter{}, time.Hour, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Mark(ctx, taken[0], s, letters.Marked{}); err != nil {
			t.Fatal(err)
		}
		publish(t, store, "orders.dlq", letter("1", "a"))
		want, seq := letters.StatusWaiting, int64(3)
		if s == letters.StatusQuarantined || s == letters.StatusRefused {
			want, seq = s, 1
		}
		if e := list(t, store, letters.Filter{IDs: []string{"1"}, Statuses: []letters.Status{want}}); len(e) != 1 || e[0].Seen != 2 || e[0].Seq != seq {
			t.Errorf("after %s: %+v", s, e)
		}
		publish(t, store, "orders.dlq", letter("3", "c"))
		wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusWaiting, want}}, 3)
	}
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"))
	taken, _ := store.Take(ctx, letters.Filter{}, time.Hour, 1)
	publish(t, store, "orders.dlq", letter("1", "a"))
	if err := store.Mark(ctx, taken[0], letters.StatusRedriven, letters.Marked{}); !errors.Is(err, letters.ErrLeaseLost) {
		t.Errorf("%v", err)
	}
	wantCount(t, store, letters.Filter{}, 1)
}

// Decision 12: of many takers at once no two ever hold the same letter.
func TestStore_concurrentTakers(t *testing.T) { onEach(t, testStore_concurrentTakers) }

func testStore_concurrentTakers(t *testing.T, on database) {
	open := on.Create(t)
	var stores []*letters.Store
	for range 2 { // two pools: as two processes would be, without the gate between them
		store, err := letters.NewStore(t.Context(), open(), letters.StoreConfig{Service: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	publish(t, stores[0], "orders.dlq", several(1000)...)
	var mu sync.Mutex
	held := make(map[int64]int)
	var takers sync.WaitGroup
	for i := range 4 {
		takers.Go(func() {
			for {
				taken, err := stores[i%2].Take(t.Context(), letters.Filter{}, time.Hour, 13)
				if err != nil {
					t.Error(err)
				}
				if len(taken) == 0 {
					return
				}
				mu.Lock()
				for _, letter := range taken {
					held[letter.Seq]++
				}
				mu.Unlock()
			}
		})
	}
	takers.Wait()
	if len(held) != 1000 {
		t.Errorf("%d letters taken", len(held))
	}
	for seq, n := range held {
		if n != 1 {
			t.Fatalf("letter %d was taken %d times", seq, n)
		}
	}
}

// Promise P1: messages published together are stored together or not at all, and a context that ended is an error.
func TestStore_allOrNone(t *testing.T) { onEach(t, testStore_allOrNone) }

func testStore_allOrNone(t *testing.T, on database) {
	store := on.NewStore(t)
	if err := store.Publish("orders.dlq", letter("1", "a"), nil); err == nil {
		t.Error("a nil message is an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msg := letter("1", "a")
	msg.SetContext(ctx)
	if err := store.Publish("orders.dlq", msg); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantCount(t, store, letters.Filter{}, 0)
}

// Features D4, D5: a database that cannot hold letters is an error at construction or initialization.
func TestStore_construction(t *testing.T) {
	if _, err := letters.NewStore(t.Context(), nil, letters.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), "NewStore: ") {
		t.Error(err)
	}
	memory, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = memory.Close() }()
	if _, err := letters.NewStore(t.Context(), memory, letters.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), "NewStore: ") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "letters.db")
	db := databases.SQLite.Open(t, "file:"+path)
	store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.InitializeTopics("orders.dlq"); err != nil {
		t.Error(err)
	}
	readOnly, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = readOnly.Close() }()
	if s, err := letters.NewStore(t.Context(), readOnly, letters.StoreConfig{Service: "shop"}); err == nil && s.InitializeTopics("orders.dlq") == nil {
		t.Error("a read-only database is an error")
	}

	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Publish("orders.dlq", letter("1", "a")); !errors.Is(err, letters.ErrClosed) {
		t.Error(err)
	}
	if err := store.InitializeTopics(); !errors.Is(err, letters.ErrClosed) {
		t.Error(err)
	}
	wantCount(t, store, letters.Filter{}, 0) // reading goes on
}

// Feature V9: a router feeds the store from dead-letter topics.
func TestStore_collect(t *testing.T) { onEach(t, testStore_collect) }

func testStore_collect(t *testing.T, on database) {
	store := on.NewStore(t)
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) { r.AddPlugin(store.Collect(pubsub, "orders.dlq", "refunds.dlq")) })
	publish(t, pubsub, "orders.dlq", letter("1", "a"))
	publish(t, pubsub, "refunds.dlq", letter("2", "b"))
	publish(t, pubsub, "orders.dlq", letter("1", "a"))
	eventually(t, "all letters are stored", func() bool {
		e := list(t, store, letters.Filter{})
		return len(e) == 2 && e[0].Seen+e[1].Seen == 3
	})
	wantCount(t, store, letters.Filter{DeadLetterTopics: []string{"refunds.dlq"}}, 1)
}

// Features V1, V9: wrong plugins say so when the router starts.
func TestPlugin_errors(t *testing.T) {
	store := newStore(t)
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer func() { _ = pubsub.Close() }()
	for name, plugin := range map[string]message.RouterPlugin{
		"nil subscriber": store.Collect(nil, "orders.dlq"),
		"no topics":      store.Collect(pubsub),
		"empty topic":    store.Collect(pubsub, ""),
		"topic twice":    store.Collect(pubsub, "orders.dlq", "orders.dlq"),
	} {
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		if err := plugin(router); err == nil || !strings.HasPrefix(err.Error(), "letters: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Promises P1, P2: the same id and payload with other metadata is another message; an empty payload stays one, and none
// stays none.
func TestStore_metadataAndEmptyPayload(t *testing.T) { onEach(t, testStore_metadataAndEmptyPayload) }

func testStore_metadataAndEmptyPayload(t *testing.T, on database) {
	s := on.NewStore(t)
	for _, tenant := range []string{"alice", "bob"} {
		publish(t, s, "orders.dlq", letter("same", "payload", func(l *poison.Letter) { l.Original.Metadata["tenant"] = tenant }))
	}
	wantCount(t, s, letters.Filter{}, 2)
	empty, none := letter("empty", ""), letter("none", "")
	empty.Payload, none.Payload = []byte{}, nil
	publish(t, s, "orders.dlq", empty, none)
	for id, isNil := range map[string]bool{"empty": false, "none": true} {
		got := list(t, s, letters.Filter{IDs: []string{id}})
		if len(got) != 1 || (got[0].Letter.Original.Payload == nil) != isNil || len(got[0].Letter.Original.Payload) != 0 {
			t.Errorf("%s came back as %#v", id, got)
		}
	}
}
