package letters_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promises P1, P2: text that came with a message is kept and chosen by whatever it holds, NUL and what is not UTF-8
// included, and so is what a caller says.
func TestStore_hostileText(t *testing.T) { onEach(t, testStore_hostileText) }

func testStore_hostileText(t *testing.T, on database) {
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
	if len(entries) != 2 || entries[0].Topic != hostile {
		t.Fatalf("%+v", entries)
	}
	for _, e := range entries {
		failure := e.Letter.Failure
		for name, f := range map[string]letters.Filter{
			"Reasons":   {Reasons: []string{failure.Reason, hostile}, IDs: []string{e.Letter.Original.UUID}},
			"StackHash": {StackHash: failure.StackHash, IDs: []string{e.Letter.Original.UUID}},
		} {
			if n, err := store.Count(ctx, f); err != nil || n != 1 {
				t.Errorf("%s of %s: %d, %v", name, e.Letter.Original.UUID, n, err)
			}
		}
	}
	groups, err := store.Groups(ctx, letters.Filter{})
	if err != nil || !slices.ContainsFunc(groups, func(g letters.Group) bool { return g.Description == entries[1].Letter.Failure.Description }) {
		t.Errorf("%+v, %v", groups, err)
	}
	taken, err := store.Take(ctx, letters.Filter{}, time.Hour, 10)
	if err != nil || len(taken) != 2 {
		t.Fatal(taken, err)
	}
	forged := taken[0]
	forged.Token = hostile
	if err := store.Mark(ctx, forged, letters.StatusDiscarded, letters.Marked{}); !errors.Is(err, letters.ErrLeaseLost) {
		t.Error(err)
	}
	if err := store.Mark(ctx, taken[0], letters.StatusDiscarded, letters.Marked{By: hostile}); err != nil {
		t.Fatal(err)
	}
	if e := list(t, store, status(letters.StatusDiscarded)); len(e) != 1 || e[0].Marked.By != hostile {
		t.Errorf("%+v", e)
	}
}

// Promise P1: letters of several processes at once, in opposite orders, get in each other's way and are stored all.
func TestStore_publishInOppositeOrders(t *testing.T) { onEach(t, testStore_publishInOppositeOrders) }

func testStore_publishInOppositeOrders(t *testing.T, on database) {
	open := on.Create(t)
	stores := []*letters.Store{storeOn(t, open()), storeOn(t, open())}
	var publishers sync.WaitGroup
	for i := range 8 {
		publishers.Go(func() {
			batch := several(20)
			if i%2 == 1 {
				slices.Reverse(batch)
			}
			if err := stores[i%2].Publish("orders.dlq", batch...); err != nil {
				t.Error(err)
			}
		})
	}
	publishers.Wait()
	for _, e := range list(t, stores[0], letters.Filter{}) {
		if e.Seen != 8 {
			t.Fatalf("letter %d was seen %d times", e.Seq, e.Seen)
		}
	}
	wantCount(t, stores[0], letters.Filter{}, 20)
}

// Feature V9: many processes may make the store at once, and a table of another shape is refused.
func TestStore_postgresConstruction(t *testing.T) {
	address := postgrestest.Schema(t)
	var makers sync.WaitGroup
	for range 10 {
		db := postgrestest.Open(t, address)
		if err := db.Ping(); err != nil {
			t.Fatal(err)
		}
		makers.Go(func() {
			store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
			if err == nil {
				err = store.InitializeTopics("orders.dlq")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	makers.Wait()
	readOnly := postgrestest.Open(t, address+"&default_transaction_read_only=on")
	if err := storeOn(t, readOnly).InitializeTopics("orders.dlq"); err == nil {
		t.Error("a read-only database is an error")
	}
	db := postgresSchema.Create(t)()
	if _, err := db.Exec(`CREATE TABLE spillway_dead_letters (seq bigint PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	if _, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), "NewStore: ") {
		t.Error(err)
	}
}
