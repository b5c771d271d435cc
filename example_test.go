package spillway_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// The quick start of the README: a router, its handler, and the lines that protect it.
func Example() {
	ctx, db, router, sub, pub, live, cleanUp := whatYouHave()
	defer cleanUp()
	customers := map[string]bool{}
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if !customers[string(msg.Payload)] {
			return nil, classify.Permanent(errors.New("no such customer"))
		}
		_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO invoices VALUES (?)`, msg.UUID)
		return []*message.Message{message.NewMessage("", []byte("invoice"))}, err
	}

	// begin quick start
	dlc, err := spillway.New(ctx, spillway.Config{
		Service: "shop",            // the owner of the dead letters and keys in DB
		DB:      db,                // PostgreSQL, MySQL, MariaDB, or a SQLite file
		Breaker: &breaker.Config{}, // messages wait while what their handler calls is away
	})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router) // before other middlewares
	router.AddHandler("billing", "orders", sub, "invoices", pub, handle)
	// end quick start

	invoices, err := pub.(message.Subscriber).Subscribe(ctx, "invoices")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(ctx) }()
	<-router.Running()
	if err := live.Publish("orders", message.NewMessage("order-1", []byte("acme"))); err != nil {
		log.Fatal(err)
	}
	for waiting := 0; waiting == 0; {
		if waiting, err = dlc.Letters().Count(ctx, letters.Filter{}); err != nil {
			log.Fatal(err)
		}
	}
	customers["acme"] = true

	// later, when the cause is fixed
	report, err := redrive.Drain(ctx, dlc.Letters(), live, redrive.DrainConfig{Rules: redrive.Rules{Rate: 100, Allow: []string{"orders"}}})
	invoice := <-invoices
	invoice.Ack()
	fmt.Println(report.Redriven, err, string(invoice.Payload))
	_ = router.Close()
	// Output: 1 <nil> invoice
}

// Parts mixed by hand: one handler with all of the channel, another with its own, outermost first.
func ExampleChannel_Middleware() {
	_, db, router, sub, pub, _, cleanUp := whatYouHave()
	defer cleanUp()
	dead, err := letters.NewStore(context.Background(), db, settings.Shared{Service: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 3}})
	if err != nil {
		log.Fatal(err)
	}
	router.AddPublisherDecorators(dlc.DecoratePublisher)              // insists on outputs; passes by handlers without the channel
	router.AddSubscriberDecorators(dlc.Queue().InitializeOnSubscribe) // a missing topic for letters is an error of Run
	router.AddPlugin(dlc.Plugin)
	billing := router.AddHandler("billing", "orders", sub, "invoices", pub, message.PassthroughHandler)
	billing.AddMiddleware(dlc.Middleware)

	queue, err := poison.NewQueue(dead, poison.QueueConfig{Shared: settings.Shared{Naming: naming.Scheme{DeadLetter: "{topic}.{handler}.dlq"}}})
	if err != nil {
		log.Fatal(err)
	}
	retry, err := middleware.NewRetry(middleware.RetryConfig{Attempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	audit := router.AddConsumerHandler("audit", "orders", sub, func(*message.Message) error { return nil })
	audit.AddMiddleware(queue.Middleware, retry.Middleware, middleware.Recover)
	fmt.Println(len(router.Handlers()), "handlers")
	// Output: 2 handlers
}

func whatYouHave() (ctx context.Context, db *sql.DB, router *message.Router, sub message.Subscriber, pub, live message.Publisher, cleanUp func()) {
	folder, err := os.MkdirTemp("", "spillway-example-")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("sqlite", filepath.Join(folder, "example.db")); err != nil {
		log.Fatal(err)
	}
	if _, err = db.Exec(`CREATE TABLE invoices (order_id TEXT)`); err != nil {
		log.Fatal(err)
	}
	if router, err = message.NewRouter(message.RouterConfig{}, nil); err != nil {
		log.Fatal(err)
	}
	orders, invoices := gochannel.NewGoChannel(gochannel.Config{}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cleanUp = func() { cancel(); _ = orders.Close(); _ = invoices.Close(); _ = db.Close(); _ = os.RemoveAll(folder) }
	return ctx, db, router, orders, invoices, orders, cleanUp
}
