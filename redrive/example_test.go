package redrive_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func exampleDB() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "redrive")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	return db, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

// failing is a message that a handler gave up on.
func failing(id, why string) *message.Message {
	return poison.Letter{
		Original: message.NewMessage(id, []byte(`{"total":9}`)),
		Origin:   poison.Origin{Topic: "orders", Handler: "billing"},
		Failure:  poison.Failure{Class: classify.ClassPermanent, Reason: why, Description: "order " + id},
	}.Encode()
}

// A store takes dead letters as a publisher does, here straight from a queue, and groups them by what went wrong.
func ExampleStore() {
	db, remove := exampleDB()
	defer remove()
	store, err := redrive.NewStore(redrive.StoreConfig{DB: db})
	if err != nil {
		panic(err)
	}
	queue, err := poison.NewQueue(store, poison.QueueConfig{})
	if err != nil {
		panic(err)
	}
	handler := queue.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, poison.Reject("no_such_customer", "customer 7 is unknown")
	})
	for _, id := range []string{"1", "2", "3"} {
		if _, err := handler(message.NewMessage(id, []byte("{}"))); err != nil {
			panic(err)
		}
	}

	groups, err := store.Groups(context.Background(), redrive.Filter{})
	if err != nil {
		panic(err)
	}
	for _, g := range groups {
		fmt.Println(g.Count, g.Class, g.Reason, "-", g.Description)
	}
	// Output: 3 permanent no_such_customer - customer 7 is unknown
}

// On PostgreSQL, MySQL and MariaDB the store is made in the same way: it asks the database what it is.
func ExampleNewStore() {
	db, err := sql.Open("pgx", "postgres://app@localhost/shop") // the driver is the application's choice
	if err != nil {
		panic(err)
	}
	store, err := redrive.NewStore(redrive.StoreConfig{DB: db})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
}

// A drain brings back what a filter chooses, to the topics that are allowed.
func ExampleStore_Drain() {
	db, remove := exampleDB()
	defer remove()
	store, err := redrive.NewStore(redrive.StoreConfig{DB: db})
	if err != nil {
		panic(err)
	}
	err = store.Publish("orders.dlq", failing("1", "no_such_customer"), failing("2", "out_of_stock"), failing("3", "no_such_customer"))
	if err != nil {
		panic(err)
	}

	live := publisherFunc(func(topic string, messages ...*message.Message) error {
		for _, msg := range messages {
			fmt.Println(topic, msg.UUID, string(msg.Payload), "redrive", msg.Metadata.Get(poison.KeyRedriveCount))
		}
		return nil
	})
	report, err := store.Drain(context.Background(), live, redrive.DrainConfig{
		Rate:   100,
		Allow:  []string{"orders"},
		Filter: redrive.Filter{Reasons: []string{"no_such_customer"}},
		By:     "ann",
	})
	fmt.Println(report.Redriven, "redriven,", report.Refused, "refused", err)
	// Output:
	// orders 1 {"total":9} redrive 1
	// orders 3 {"total":9} redrive 1
	// 2 redriven, 0 refused <nil>
}

// A handler brings letters back as they arrive. On a router it is added with router.AddPlugin(handler.Plugin(sub, topic)).
func ExampleHandler() {
	print := publisherFunc(func(topic string, messages ...*message.Message) error {
		fmt.Println(messages[0].UUID, "to", topic)
		return nil
	})
	handler, err := redrive.NewHandler(redrive.HandlerConfig{
		Publisher: print,
		Park:      print,
		Allow:     []string{"orders"},
		Filter:    redrive.Filter{Reasons: []string{"out_of_stock"}},
	})
	if err != nil {
		panic(err)
	}
	for _, msg := range []*message.Message{failing("1", "out_of_stock"), failing("2", "no_such_customer")} {
		if err := handler.Handle(msg); err != nil {
			panic(err)
		}
	}
	// Output:
	// 1 to orders
	// 2 to unknown.parked
}
