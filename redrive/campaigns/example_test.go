package campaigns_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Ann looks what a campaign would do, starts it, and waits for its end. A worker of the service does the work.
func Example() {
	dir, err := os.MkdirTemp("", "campaigns")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store, err := letters.NewStore(ctx, db, settings.Shared{Service: "shop"})
	if err != nil {
		panic(err)
	}
	msg := message.NewMessage("7", []byte(`{"order":12345678901234567890,"currency":"DM"}`))
	letter := poison.Letter{Original: msg, Origin: poison.Origin{Topic: "orders", Handler: "billing"}}
	if err := store.Publish("orders.dlq", letter.Encode()); err != nil {
		panic(err)
	}

	all, err := campaigns.New(ctx, store, campaigns.Config{Allow: []string{"orders"}})
	if err != nil {
		panic(err)
	}
	live := fixture.PublisherFunc(func(topic string, messages ...*message.Message) error {
		fmt.Printf("%s: %s\n", topic, messages[0].Payload)
		return nil
	})
	worker, err := campaigns.NewWorker(all, live, campaigns.WorkerConfig{Poll: 10 * time.Millisecond}) // router.AddPlugin(worker.Plugin)
	if err != nil {
		panic(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- worker.Run(working) }()

	request := campaigns.Request{
		Filter: letters.Filter{Handlers: []string{"billing"}}, Rate: 50,
		Edit: &campaigns.Edit{Merge: []byte(`{"currency":"EUR"}`)},
		Act:  campaigns.Act{By: "ann", Reason: "the currency is EUR since 2002"},
	}
	plan, err := all.Plan(ctx, request)
	if err != nil {
		panic(err)
	}
	fmt.Println("would redrive", plan.Letters)
	c, err := all.Start(ctx, request)
	for err == nil && c.State != campaigns.Finished {
		time.Sleep(10 * time.Millisecond)
		c, err = all.Get(ctx, c.ID)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("redriven", c.Redriven)
	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
	// Output:
	// would redrive 1
	// orders: {"order":12345678901234567890,"currency":"EUR"}
	// redriven 1
}
