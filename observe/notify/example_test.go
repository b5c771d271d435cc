package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/observe/notify"
)

func Example() {
	ctx := context.Background()
	sent := make(chan notify.Notice, 1)
	chat := func(_ context.Context, n notify.Notice) error { sent <- n; return nil } // or webhook.New

	notifier, err := notify.New(notify.Config{Sinks: []notify.Sink{chat}})
	if err != nil {
		log.Fatal(err)
	}
	config := spillway.Config{Publisher: nowhere{}} // or DB
	config.Observers = []spillway.Observer{notifier}
	dlc, err := spillway.New(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	if err := notifier.Watch(ctx, dlc); err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	router.AddPlugin(notifier.Plugin) // sends while the router runs

	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router.AddConsumerHandler("billing", "orders", live, func(*message.Message) error {
		return classify.Permanent(errors.New("customer 7 is unknown"), classify.Reason("no_such_customer"))
	})
	if err := live.Publish("orders", message.NewMessage("1", nil)); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- router.Run(ctx) }()
	n := <-sent
	fmt.Println(n.Title)
	fmt.Println(n.Description)
	if err := errors.Join(router.Close(), <-ended); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Dead letter of a new cause: orders, billing, no_such_customer
	// customer 7 is unknown
}
