package letters_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: a letter that arrived again is there with its latest failure, over a restart.
func TestStore_latestFailure(t *testing.T) { onEach(t, testStore_latestFailure) }

func testStore_latestFailure(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	first := storeOn(t, open())
	publish(t, first, "orders.dlq", letter("1", "{}"))
	publish(t, first, "orders.dlq")
	publish(t, first, "orders.invalid", letter("1", "{}", func(l *poison.Letter) { l.Failure.Reason = "later" }))
	all := list(t, storeOn(t, open()), letters.Filter{})
	testkit.Require(t, len(all) == 1 && all[0].Seen == 2 && all[0].DeadLetterTopic == "orders.invalid" &&
		all[0].Status == letters.StatusWaiting && time.Since(all[0].StoredAt) <= time.Minute && all[0].MarkedAt.IsZero() &&
		all[0].Failure.Reason == "later" && all[0].Failure.FirstFailedAt.Equal(fixture.FailedAt), "%+v", all)
}

// Feature V5, V9: each field of a filter chooses by itself, and pages follow one another.
func TestStore_filter(t *testing.T) { onEach(t, testStore_filter) }

func testStore_filter(t *testing.T, on fixture.Database) {
	store := on.NewStore(t)
	other := func(l *poison.Letter) {
		l.Origin.Topic, l.Origin.Handler = "refunds", "mailer"
		l.Failure.Class, l.Failure.Reason, l.Failure.StackHash = classify.ClassInvalid, "panic", "def"
		l.Failure.LastFailedAt = fixture.FailedAt.Add(time.Hour)
		l.Failure.Type, l.Failure.Description = "*mail.Error", "mailbox\x00 of \xff100%_ is full"
		l.Redrive = poison.Redrive{Count: 1, ID: "drain-7"}
	}
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	publish(t, store, "refunds.dlq", letter("3", "c\x00d\xff%_", other))
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
		"Payload":          {Payload: "\x00d\xff%"},
	} {
		entries := list(t, store, f)
		testkit.Check(t, len(entries) == 1 && entries[0].Letter.Original.UUID == "3",
			"%s: %d entries", name, len(entries))
		wantCount(t, store, f, 1)
	}
	wantCount(t, store, letters.Filter{Until: fixture.FailedAt.Add(time.Hour)}, 2)
	wantCount(t, store, letters.Filter{MaxSeq: 2, Limit: 1}, 2)
	wantCount(t, store, letters.Filter{Topics: []string{"orders' OR 1=1 --"}}, 0)
	wantCount(t, store, letters.Filter{Description: "FULL"}, 0)
	wantCount(t, store, letters.Filter{Causes: []string{"unknown"}}, 0)
	wantCount(t, store, letters.Filter{Payload: "cd"}, 0)
	wantCount(t, store, status(letters.StatusRedriven), 0)
	l := testkit.Must(store.Get(t.Context(), 3))
	testkit.Check(t, string(l.Original.Payload) == "c\x00d\xff%_" && l.Original.Metadata["tenant"] == "blue", "%+v", l)
	testkit.Is(t, testkit.Err(store.Get(t.Context(), 99)), letters.ErrNotFound)
	topics, err := hidden.Of(store).CountTopics(t.Context(), letters.Filter{Payload: "b"})
	testkit.Check(t, err == nil && len(topics) == 1 && topics["orders"] == 1, "%+v, %v", topics, err)
	pages := heads(t, store, letters.Filter{}, 2)
	testkit.Check(t, slices.Equal(pages, []int64{1, 2, 3}), "pages hold %v", pages)
	for field, f := range map[string]letters.Filter{
		"Filter.Limit":    {Limit: letters.MaxLimit + 1},
		"Filter.After":    {After: -1},
		"Filter.Statuses": {Statuses: []letters.Status{"gone"}},
		"Filter.IDs":      {IDs: make([]string, 501)},
	} {
		testkit.Says(t, testkit.Err(store.List(t.Context(), f)), field)
	}
}

// Feature V5: a search in payloads finds a text however a writer of JSON escaped it, and as it may be typed.
func TestStore_spellings(t *testing.T) { onEach(t, testStore_spellings) }

func testStore_spellings(t *testing.T, on fixture.Database) {
	store := on.NewStore(t)
	for text, forms := range map[string][]string{
		"Jürgen 😀": {`"Jürgen 😀"`, `"J\u00fcrgen \ud83d\ude00"`, `"J\u00FCrgen \uD83D\uDE00"`},
		"a<b&c":    {`"a<b&c"`, `"a\u003cb\u0026c"`},
	} {
		for i, form := range forms {
			publish(t, store, "orders.dlq", letter(text+string(rune('0'+i)), form))
		}
		for _, form := range forms {
			f := letters.Filter{Payload: strings.Trim(form, `"`)}
			wantCount(t, store, f, len(forms))
			for _, other := range forms {
				l := poison.Letter{Original: message.NewMessage("", []byte(other))}
				testkit.Check(t, f.Matches(l), "%s does not find %s", form, other)
			}
		}
	}
	for _, typed := range []string{"Jurgen", "jürgen", `J\u00f`, `\u00`, `a\u003cb\u0026d`} {
		l := poison.Letter{Original: message.NewMessage("", []byte(`"Jürgen a<b&c"`))}
		wrong := letters.Filter{Payload: typed}
		testkit.Check(t, !wrong.Matches(l), "%s finds %s", typed, l.Original.Payload)
	}
}

// Feature V9: letters of one cause are one group, the largest first.
func TestStore_groups(t *testing.T) { onEach(t, testStore_groups) }

func testStore_groups(t *testing.T, on fixture.Database) {
	store := on.NewStore(t)
	later := func(l *poison.Letter) { l.Failure.LastFailedAt = fixture.FailedAt.Add(time.Hour) }
	hostile := "han\x00dler\xff"
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b", later), letter("3", "c"))
	publish(t, store, "orders.dlq", letter("4", "d", func(l *poison.Letter) { l.Origin.Handler = hostile }))
	groups, err := store.Groups(t.Context(), letters.Filter{})
	testkit.Require(t, err == nil && len(groups) == 2, "%+v, %v", groups, err)
	want := letters.Group{
		DeadLetterTopic: "orders.dlq", Topic: "orders", Handler: "billing", Class: classify.ClassPermanent,
		Reason: "no_such_customer", Type: "*shop.Error", StackHash: "abc",
		Count: 3, Arrived: 3, FirstFailedAt: fixture.FailedAt, LastFailedAt: fixture.FailedAt.Add(time.Hour), Example: 3, Description: "customer 3 is unknown",
	}
	want.Cause, want.All = groups[0].Cause, groups[0].All
	if !reflect.DeepEqual(groups[0], want) || want.All[letters.StatusWaiting] != 3 || want.All[letters.StatusRedriven] != 0 {
		t.Errorf("got  %+v\nwant %+v", groups[0], want)
	}
	testkit.Check(t, groups[1].Handler == hostile && groups[1].Count == 1, "%+v", groups[1])
	for _, g := range groups {
		wantCount(t, store, letters.Filter{Causes: []string{g.Cause}}, g.Count)
	}
	publish(t, store, "orders.dlq", letter("5", "e", func(l *poison.Letter) { l.Failure.Description = "disk full" }))
	groups = testkit.Must(store.Groups(t.Context(), letters.Filter{}))
	testkit.Check(t, len(groups) == 3, "an error of the same type that says something else: %+v", groups)
}

// Promise P1: messages published together are stored together or not at all, and a context that ended is an error.
func TestStore_allOrNone(t *testing.T) {
	store := newStore(t)
	testkit.Check(t, store.Publish("orders.dlq", letter("1", "a"), nil) != nil, "a nil message is an error")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msg := letter("1", "a")
	msg.SetContext(ctx)
	testkit.Is(t, store.Publish("orders.dlq", msg), context.Canceled)
	wantCount(t, store, letters.Filter{}, 0)
}

// Features D4, D5: a database that cannot hold letters is an error at construction or initialization.
func TestStore_construction(t *testing.T) {
	testkit.Says(t, testkit.Err(letters.NewStore(t.Context(), nil, letters.Config{Service: "shop"})), "NewStore: ")
	memory := testkit.Must(sql.Open("sqlite", ":memory:"))
	defer func() { _ = memory.Close() }()
	testkit.Says(t, testkit.Err(letters.NewStore(t.Context(), memory, letters.Config{Service: "shop"})), "NewStore: ")
	path := filepath.Join(t.TempDir(), "letters.db")
	db := databases.SQLite.Open(t, "file:"+path)
	store := storeOn(t, db)
	testkit.NoError(t, store.InitializeTopics("orders.dlq"))
	readOnly := testkit.Must(sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)"))
	defer func() { _ = readOnly.Close() }()
	s, err := letters.NewStore(t.Context(), readOnly, letters.Config{Service: "shop"})
	testkit.Check(t, err != nil || s.InitializeTopics("orders.dlq") != nil, "a read-only database is an error")

	testkit.NoError(t, store.Close())
	testkit.Is(t, store.Publish("orders.dlq", letter("1", "a")), letters.ErrClosed)
	testkit.Is(t, store.InitializeTopics(), letters.ErrClosed)
	wantCount(t, store, letters.Filter{}, 0) // reading goes on
}

// Feature V9: a router feeds the store from dead-letter topics.
func TestStore_collect(t *testing.T) { onEach(t, testStore_collect) }

func testStore_collect(t *testing.T, on fixture.Database) {
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

	foreign := message.NewMessage("3", []byte("\xff{")) // of a program that knows nothing of dead letters
	foreign.Metadata = message.Metadata{"cause": "unknown"}
	publish(t, pubsub, "orders.dlq", foreign)
	publish(t, pubsub, "refunds.dlq", foreign.Copy())
	f := letters.Filter{NoOrigin: true, DeadLetterTopics: []string{"orders.dlq"}}
	eventually(t, "messages that are no letters are stored", func() bool {
		heads, err := store.Heads(t.Context(), letters.Filter{NoOrigin: true})
		return err == nil && len(heads) == 2
	})
	groups, err := store.Groups(t.Context(), f)
	testkit.Check(t, err == nil && len(groups) == 1 && groups[0].Count == 1 && groups[0].Topic == "" &&
		groups[0].DeadLetterTopic == "orders.dlq", "%+v, %v", groups, err)
	found := list(t, store, f)
	testkit.Check(t, len(found) == 1 && found[0].Original.UUID == "3" && string(found[0].Original.Payload) == "\xff{" &&
		found[0].Original.Metadata["cause"] == "unknown" && f.Matches(found[0].Letter), "%+v", found)
	wantCount(t, store, f, 1)
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddPlugin(store.Collect(withoutOffsets{pubsub, hidden.By[inside.Group](noOffsets{})}, "new.dlq", "orders.dlq"))
	testkit.Says(t, testkit.Err(0, testkit.Starts(t, router)), `collect "orders.dlq"`)
	wantCount(t, store, letters.Filter{NoOrigin: true, IDs: []string{"1", "2"}}, 0)
	testkit.Check(t, !f.Matches(list(t, store, letters.Filter{IDs: []string{"1"}})[0].Letter),
		"a letter of Spillway's has no origin")
}

// withoutOffsets is a subscriber as that of wmkafka, whose group has no offsets.
type withoutOffsets struct {
	message.Subscriber
	hidden.Handle[inside.Group]
}

type noOffsets struct{}

func (noOffsets) Begun(context.Context, string) (bool, error) { return false, nil }

// Promises P1, P2: text of a message is kept and chosen by whatever it holds, and so is what a caller says.
func TestStore_hostileText(t *testing.T) { onEach(t, testStore_hostileText) }

func testStore_hostileText(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	hostile := "a\x00b\xff'; DROP TABLE spillway_dead_letters; --?$1"
	bad := message.NewMessage("1", nil)
	for _, key := range []string{
		poison.KeyFailureReason, poison.KeyFailureDescription, poison.KeyFailureType, poison.KeyFailureStackHash,
		poison.KeyFailureClass, poison.KeyOriginalTopic, poison.KeyOriginalHandler, poison.KeyRedrivenBy, poison.KeyRedriveID,
	} {
		bad.Metadata.Set(key, hostile)
	}
	clean := letter("2", "{}", func(l *poison.Letter) {
		l.Failure.Reason, l.Failure.Type, l.Failure.StackHash, l.Failure.Description = hostile, hostile, hostile, hostile
	})
	publish(t, store, hostile, bad, clean)
	entries := list(t, store, letters.Filter{})
	testkit.Require(t, len(entries) == 2 && entries[0].DeadLetterTopic == hostile, "%+v", entries)
	for _, e := range entries {
		failure := e.Letter.Failure
		testkit.Returns(t, 1)(store.Count(ctx, letters.Filter{Reasons: []string{failure.Reason, hostile}, IDs: []string{e.Letter.Original.UUID}}))
		testkit.Returns(t, 1)(store.Count(ctx, letters.Filter{StackHash: failure.StackHash, IDs: []string{e.Letter.Original.UUID}}))
	}
	groups, err := store.Groups(ctx, letters.Filter{})
	testkit.Check(t, err == nil &&
		slices.ContainsFunc(groups, func(g letters.Group) bool { return g.Description == entries[1].Letter.Failure.Description }),
		"%+v, %v", groups, err)
	taken := take(t, store, letters.Filter{}, 2)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: hostile}))
	e := list(t, store, status(letters.StatusDiscarded))
	testkit.Check(t, len(e) == 1 && e[0].Marked.By == hostile, "%+v", e)
}
