package sqlmarks_test

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

	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Deliveries that did not return are counted in the service's database. A process registers while its router runs.
func ExampleNewStore() {
	folder := must(os.MkdirTemp("", "crashlimit"))
	defer func() { _ = os.RemoveAll(folder) }()
	db := must(sql.Open("sqlite", filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(20000)"))
	defer func() { _ = db.Close() }()
	store := must(sqlmarks.NewStore(context.Background(), db, "shop"))
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
