package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

func exampleDB() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "letters")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	return db, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

// A store takes dead letters as a publisher does, here straight from a queue, and groups them by what went wrong.
func ExampleStore() {
	db, remove := exampleDB()
	defer remove()
	store, err := letters.NewStore(context.Background(), db, settings.Shared{Service: "shop"})
	if err != nil {
		panic(err)
	}
	queue, err := poison.NewQueue(store, poison.QueueConfig{})
	if err != nil {
		panic(err)
	}
	handler := queue.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("customer 7 is unknown"), classify.Reason("no_such_customer"))
	})
	for _, id := range []string{"1", "2", "3"} {
		if _, err := handler(message.NewMessage(id, []byte("{}"))); err != nil {
			panic(err)
		}
	}

	groups, err := store.Groups(context.Background(), letters.Filter{})
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
	store, err := letters.NewStore(context.Background(), db, settings.Shared{Service: "shop"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
}
