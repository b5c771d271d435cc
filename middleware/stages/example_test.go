package stages_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A payment provider is unavailable. The order waits in a topic of its own, while the next one is billed.
func ExampleStages() {
	pubsub := func() *gochannel.GoChannel { // one for each: the router closes a handler's
		return gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	}
	notified := make(chan string)
	orders, waiting, dead := pubsub(), pubsub(), pubsub()
	queue := must(poison.NewQueue(dead, poison.QueueConfig{}))
	later := must(stages.New(queue, stages.Config{
		Publisher:  waiting,
		Subscriber: func(topic, group string) (message.Subscriber, error) { return waiting, nil },
		Stages:     stages.Delays(300*time.Millisecond, time.Minute),
		Hooks:      stages.Hooks{OnStage: func(_ context.Context, s stages.Waiting) { notified <- "order waits in " + s.StageTopic }},
	}))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddMiddleware(queue.Middleware, later.Middleware, middleware.Recover)
	router.AddPlugin(later.Plugin)

	must(later.AddConsumerHandler(router, "billing", "orders", orders, func(msg *message.Message) error {
		if msg.UUID == "order-1" && msg.Metadata.Get(poison.KeyRetryStage) == "" {
			return errors.New("provider is unavailable")
		}
		notified <- msg.UUID + " is billed"
		return nil
	}))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	for _, id := range []string{"order-1", "order-2"} {
		if err := orders.Publish("orders", message.NewMessage(id, nil)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-notified)
	}
	fmt.Println(<-notified)
	_ = router.Close()
	// Output:
	// order waits in orders.billing.retry.300ms
	// order-2 is billed
	// order-1 is billed
}

// A handler that the router has already gets stages too. So do those of cqrs: its processors return, or name, the
// handlers that they add.
func ExampleStages_Extend() {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	queue := must(poison.NewQueue(pubsub, poison.QueueConfig{}))
	later := must(stages.New(queue, stages.Config{
		Publisher:  pubsub,
		Subscriber: func(topic, group string) (message.Subscriber, error) { return pubsub, nil },
	}))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))

	// handler, err := eventProcessor.AddHandler(cqrs.NewEventHandler("OnOrderPlaced", onOrderPlaced))
	handler := router.AddConsumerHandler("OnOrderPlaced", "events.OrderPlaced", pubsub, func(*message.Message) error { return nil })

	extended := must(later.Extend(router, "OnOrderPlaced", "events.OrderPlaced"))
	invoices := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	billing := must(later.AddHandler(router, "billing", "orders", pubsub, "invoices", invoices, message.PassthroughHandler))
	for _, h := range []*message.Handler{handler, extended, billing} {
		h.AddMiddleware(queue.Middleware, later.Middleware)
	}
	fmt.Println(len(router.Handlers()), "handlers")
	letter := poison.Letter{Origin: poison.Origin{Topic: "orders", Handler: "billing"}}
	fmt.Println(later.ReentryTopic(letter)) // where redrive.Rules.ReentryTopic brings it back
	// Output:
	// 3 handlers
	// orders.billing.retry.5s
}
