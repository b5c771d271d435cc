package crashlimit_test

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
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A message that ends the process is refused after it did so a few times, by the store's count. No program can show
// that and live, so this shows the broker's own count, which can stand alone or beside it.
func ExampleLimit() {
	limit := must(crashlimit.New(crashlimit.Config{
		Max:       5,
		Delivered: func(msg *message.Message) (int, bool) { return len(msg.Payload), true }, // wmamqp.DeliveryCount, for instance
		Hooks: crashlimit.Hooks{OnExceeded: func(_ context.Context, u crashlimit.Unfinished) {
			fmt.Println(u.Key, "did not return", u.Deliveries, "times")
		}},
	}))
	handle := limit.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("handled", msg.UUID)
		return nil, nil
	})
	for i, id := range []string{"good", "deadly"} {
		if _, err := handle(message.NewMessage(id, make([]byte, 9*i))); err != nil {
			verdict := (*classify.Classifier)(nil).Classify(err)
			fmt.Println("refused", id+":", verdict.Class, verdict.Reason)
		}
	}
	// Output:
	// handled good
	// deadly did not return 9 times
	// refused deadly: permanent max_delivery_count_exceeded
}

// Deliveries that did not return are counted in the service's database. A process registers while its router runs.
func ExampleNewStore() {
	folder := must(os.MkdirTemp("", "crashlimit"))
	defer func() { _ = os.RemoveAll(folder) }()
	db := must(sql.Open("sqlite", filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(20000)"))
	defer func() { _ = db.Close() }()
	store := must(crashlimit.NewStore(context.Background(), db, "shop"))
	limit := must(crashlimit.New(crashlimit.Config{Store: store}))
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddPlugin(limit.Plugin)
	router.AddMiddleware(limit.Middleware)
	orders, handled := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), make(chan string)
	router.AddConsumerHandler("billing", "orders", orders, func(msg *message.Message) error {
		handled <- msg.UUID
		return nil
	})
	if err := orders.Publish("orders", message.NewMessage("order-1", nil)); err != nil {
		panic(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	fmt.Println(<-handled)
	_ = router.Close()
	// Output: order-1
}
