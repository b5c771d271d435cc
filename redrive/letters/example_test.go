package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func exampleDB() (*sql.DB, func()) {
	dir := must(os.MkdirTemp("", "letters"))
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)"))
	return db, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

// A store takes dead letters as a publisher does, here straight from a queue, and groups them by what went wrong.
func ExampleStore() {
	db, remove := exampleDB()
	defer remove()
	store := must(letters.NewStore(context.Background(), db, letters.Config{Service: "shop"}))
	queue := must(poison.NewQueue(store, poison.QueueConfig{}))
	handler := queue.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("customer 7 is unknown"), classify.Reason("no_such_customer"))
	})
	for _, id := range []string{"1", "2", "3"} {
		if _, err := handler(message.NewMessage(id, []byte("{}"))); err != nil {
			panic(err)
		}
	}

	groups := must(store.Groups(context.Background(), letters.Filter{}))
	for _, g := range groups {
		fmt.Println(g.Count, g.Class, g.Reason, "-", g.Description)
	}
	// Output: 3 permanent no_such_customer - customer 7 is unknown
}

// On PostgreSQL, MySQL and MariaDB the store is made in the same way: it asks the database what it is.
func ExampleNewStore() {
	db := must(sql.Open("pgx", "postgres://app@localhost/shop")) // the driver is the application's choice
	store := must(letters.NewStore(context.Background(), db, letters.Config{Service: "shop"}))
	defer func() { _ = store.Close() }()
}

// What a person on call does, by program: look, decide, and read the record.
func ExampleStore_MarkAll() {
	db, remove := exampleDB()
	defer remove()
	ctx := context.Background()
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	for _, id := range []string{"1", "2"} {
		letter := poison.Letter{
			Original: message.NewMessage(id, []byte(`{"test":true}`)),
			Origin:   poison.Origin{Topic: "orders", Handler: "billing"},
			Failure:  poison.Failure{Class: classify.ClassPermanent, Reason: "no_such_customer"},
		}
		if err := store.Publish("orders.dlq", letter.Encode()); err != nil {
			panic(err)
		}
	}
	chosen := letters.Filter{Topics: []string{"orders"}, Payload: `"test":true`}
	if err := chosen.Validate(); err != nil {
		panic(err)
	}
	heads := must(store.Heads(ctx, chosen)) // store.List has metadata and payloads too
	for _, head := range heads {
		fmt.Println(head.MessageID, head.Status, head.Reason)
	}
	fmt.Println(store.MarkAll(ctx, chosen, letters.StatusDiscarded, letters.Act{By: "ann", Reason: "orders of a load test"}))

	history := must(store.History(ctx, heads[0].Seq))
	for _, event := range history {
		fmt.Printf("%s by %q: %q\n", event.Kind, event.By, event.Reason)
	}
	chosen.Statuses = []letters.Status{letters.StatusDiscarded}
	fmt.Println(store.Purge(ctx, chosen, letters.Act{By: "ann", Reason: "nothing to keep"}))
	purged, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventPurged}})
	fmt.Println(len(purged), err)
	// Output:
	// 1 waiting no_such_customer
	// 2 waiting no_such_customer
	// 2 <nil>
	// stored by "": ""
	// discarded by "ann": "orders of a load test"
	// 2 <nil>
	// 2 <nil>
}

// A service collects the letters of a topic into its store, and deletes those that nothing waits for.
func ExampleNewRetention() {
	db, remove := exampleDB()
	defer remove()
	ctx := context.Background()
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	deleted := make(chan int, 1)
	retention := must(letters.NewRetention(store, letters.RetentionConfig{
		Rules: []letters.RetentionRule{
			{Reasons: []string{"fraud"}, Keep: true},
			{Statuses: []letters.Status{letters.StatusWaiting}, OlderThan: 30 * 24 * time.Hour},
		},
		OnRun: func(_ context.Context, n int, _ error) {
			select {
			case deleted <- n:
			default: // one is enough here
			}
		},
	}))
	dead := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddPlugin(store.Collect(dead, "orders.dlq"), retention)
	old := poison.Letter{
		Original: message.NewMessage("1", nil),
		Failure:  poison.Failure{LastFailedAt: time.Now().Add(-40 * 24 * time.Hour)},
	}
	if err := store.Publish("orders.dlq", old.Encode()); err != nil {
		panic(err)
	}
	go func() { _ = router.Run(ctx) }()
	fmt.Println(<-deleted, "letter is deleted")
	_ = router.Close()
	// Output: 1 letter is deleted
}

// A hook of a queue knows the cause under which a store keeps a letter, and a filter chooses letters there too.
func ExampleCauseOf() {
	urgent := letters.Filter{Reasons: []string{"no_such_customer"}}
	causes := map[string]int{}
	hook := func(_ context.Context, letter poison.Letter) { // poison.Hooks.OnDeadLetter
		if urgent.Matches(letter) {
			causes[letters.CauseOf(letter)]++
		}
	}
	for _, customer := range []string{"7", "12"} {
		hook(context.Background(), poison.Letter{
			Original: message.NewMessage("", nil),
			Failure:  poison.Failure{Reason: "no_such_customer", Description: "customer " + customer + " is unknown"},
		})
	}
	fmt.Println(len(causes), "cause")
	// Output: 1 cause
}

// Letters that came before there was a key are sealed later. The store opens them again.
func ExampleStore_Reseal() {
	db, remove := exampleDB()
	defer remove()
	ctx := context.Background()
	before := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	if err := before.Publish("orders.dlq", poison.Letter{Original: message.NewMessage("1", []byte("secret"))}.Encode()); err != nil {
		panic(err)
	}
	keys := must(seal.ParseKeyring("orders-2026 q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="))
	sealer := must(seal.New(keys))
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop", Seal: sealer}))
	fmt.Println(store.Reseal(ctx, letters.Filter{}, letters.Act{By: "ann", Reason: "the first key"}))
	found := must(store.List(ctx, letters.Filter{Statuses: letters.Statuses()}))
	opened, err := store.Open(ctx, found[0])
	fmt.Println(found[0].SealKey, string(opened.Original.Payload), err)
	// Output:
	// 1 <nil>
	// orders-2026 secret <nil>
}
