package delay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
)

// A message waits in a table for as long as its stage says, and then comes to its handler again.
func ExampleNewStore() {
	folder, err := os.MkdirTemp("", "delay")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	waiting, err := delay.NewStore(context.Background(), db, "shop")
	if err != nil {
		log.Fatal(err)
	}
	channel := func() *gochannel.GoChannel { return gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}) }
	orders, again := channel(), channel()
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher: channel(),
		Stages: &stages.Config{
			Store:      waiting,
			Publisher:  again,
			Subscriber: func(topic, group string) (message.Subscriber, error) { return again, nil },
			Stages:     stages.Delays(20 * time.Millisecond),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	dlc.Attach(router)
	handled := make(chan string)
	_, err = dlc.Stages().AddConsumerHandler(router, "billing", "orders", orders, func(msg *message.Message) error {
		stage := msg.Metadata.Get(poison.KeyRetryStage)
		handled <- fmt.Sprintf("stage %q", stage)
		if stage == "" {
			return errors.New("the bank is unavailable")
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	if err := orders.Publish("orders", message.NewMessage("order-1", nil)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	_ = router.Close()
	// Output:
	// stage ""
	// stage "1"
}
