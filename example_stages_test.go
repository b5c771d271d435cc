package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// A message that fails for the moment waits in a stage, and the one behind it does not.
func ExampleChannel_Stages() {
	broker := func() *gochannel.GoChannel { return gochannel.NewGoChannel(gochannel.Config{}, nil) }
	orders, waiting, dead := broker(), broker(), broker() // the router closes what a handler has, so the waiting have their own

	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher: dead,
		Stages: &stages.Config{
			Publisher:  waiting,
			Subscriber: func(topic, group string) (message.Subscriber, error) { return waiting, nil },
			Stages:     stages.Delays(50*time.Millisecond, 100*time.Millisecond),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	handled := make(chan string)
	_, err = dlc.Stages().AddConsumerHandler(router, "billing", "orders", orders, func(msg *message.Message) error {
		stage := msg.Metadata.Get("x-retry-stage")
		handled <- fmt.Sprintf("%s from stage %q", msg.UUID, stage)
		if msg.UUID == "1" && stage != "2" {
			return errors.New("the downstream is down")
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	for _, id := range []string{"1", "2"} {
		if err := orders.Publish("orders", message.NewMessage(id, nil)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-handled)
	}
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 from stage ""
	// 2 from stage ""
	// 1 from stage "1"
	// 1 from stage "2"
}
