package redrive_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// failing is a message that a handler gave up on.
func failing(id, why string) *message.Message {
	return poison.Letter{
		Original: message.NewMessage(id, []byte(`{"total":9}`)),
		Origin:   poison.Origin{Topic: "orders", Handler: "billing"},
		Failure:  poison.Failure{Class: classify.ClassPermanent, Reason: why, Description: "order " + id},
	}.Encode()
}

// A drain brings back what a filter chooses, to the topics that are allowed.
func ExampleDrain() {
	dir := must(os.MkdirTemp("", "redrive"))
	defer func() { _ = os.RemoveAll(dir) }()
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)"))
	defer func() { _ = db.Close() }()
	store := must(letters.NewStore(context.Background(), db, letters.Config{Service: "shop"}))
	err := store.Publish("orders.dlq", failing("1", "no_such_customer"), failing("2", "out_of_stock"), failing("3", "no_such_customer"))
	if err != nil {
		panic(err)
	}

	live := publisherFunc(func(topic string, messages ...*message.Message) error {
		for _, msg := range messages {
			fmt.Println(topic, msg.UUID, string(msg.Payload), "redrive", msg.Metadata.Get(poison.KeyRedriveCount))
		}
		return nil
	})
	report, err := redrive.Drain(context.Background(), store, live, redrive.DrainConfig{
		Rules: redrive.Rules{
			Rate: 100, Allow: []string{"orders"}, Filter: letters.Filter{Reasons: []string{"no_such_customer"}}, By: "ann",
		},
	})
	fmt.Println(report.Redriven, "redriven,", report.Refused, "refused", err)
	// Output:
	// orders 1 {"total":9} redrive 1
	// orders 3 {"total":9} redrive 1
	// 2 redriven, 0 refused <nil>
}

// A handler brings letters back as they arrive, and parks the others.
func ExampleHandler() {
	done := make(chan string, 1)
	print := publisherFunc(func(topic string, messages ...*message.Message) error {
		done <- messages[0].UUID + " to " + topic
		return nil
	})
	handler := must(redrive.NewHandler(print, redrive.HandlerConfig{
		Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{Reasons: []string{"out_of_stock"}}},
		Park:  print,
	}))
	dead := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddPlugin(handler.Plugin(dead, "orders.dlq"))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	for _, msg := range []*message.Message{failing("1", "out_of_stock"), failing("2", "no_such_customer")} {
		if err := dead.Publish("orders.dlq", msg); err != nil {
			panic(err)
		}
		fmt.Println(<-done)
	}
	_ = router.Close()
	fmt.Println(handler.Handle(failing("3", "out_of_stock")), <-done) // without a router
	// Output:
	// 1 to orders
	// 2 to orders.dlq.parked
	// <nil> 3 to orders
}
