package delayed_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/delayed"
)

// Messages with any delays wait in one table, and leave in the order in which they are due.
func Example() {
	dir, err := os.MkdirTemp("", "spillway")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", filepath.Join(dir, "delayed.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	store, err := delayed.NewStore(context.Background(), db, "shop")
	if err != nil {
		log.Fatal(err)
	}
	relay, err := delayed.NewRelay(store, channel, delayed.RelayConfig{})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	router.AddPlugin(relay.Plugin)
	reminded := make(chan string)
	router.AddConsumerHandler("remind", "reminders", channel, func(msg *message.Message) error {
		reminded <- msg.UUID
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	<-router.Running()

	for _, reminder := range []struct {
		id    string
		after time.Duration
	}{{"later", time.Second}, {"sooner", 500 * time.Millisecond}, {"now", 0}} {
		if err := store.Put(ctx, "reminders", message.NewMessage(reminder.id, nil), reminder.after); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(<-reminded)
	}
	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output:
	// now
	// sooner
	// later
}
