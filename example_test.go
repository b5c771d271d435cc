package spillway_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
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
		Breaker: &breaker.Config{}, // messages wait while what their handler calls is unavailable
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
	dead, err := letters.NewStore(context.Background(), db, letters.Config{Service: "shop"})
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

	queue, err := poison.NewQueue(dead, poison.QueueConfig{Naming: naming.Scheme{DeadLetter: "{topic}.{handler}.dlq"}})
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

// A handler is stopped for a deploy, which the health endpoint shows.
func ExampleChannel_Health() {
	_, db, router, _, _, _, cleanUp := whatYouHave()
	defer cleanUp()
	dlc, err := spillway.New(context.Background(), spillway.Config{Service: "shop", DB: db, Breaker: &breaker.Config{}})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)

	if err := dlc.Breaker().Open("billing", "deploy of the ledger"); err != nil {
		log.Fatal(err)
	}
	for _, held := range dlc.Health().Handlers {
		fmt.Println(held.Handler, "is", held.State, "for the", held.Reason)
	}
	if err := dlc.Breaker().Close("billing"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all is well:", dlc.Health().OK)
	// Output:
	// billing is frozen for the deploy of the ledger
	// all is well: true
}

// A handler stores the order without its address at the last attempt, rather than lose it to the dead letters.
func ExampleAttemptOf() {
	_, _, router, _, _, _, cleanUp := whatYouHave()
	defer cleanUp()
	orders, dead := gochannel.NewGoChannel(gochannel.Config{}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	dlc, err := spillway.New(context.Background(), spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 2}})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	done := make(chan bool)
	router.AddConsumerHandler("address", "orders", orders, func(msg *message.Message) error {
		attempt := spillway.AttemptOf(msg.Context())
		fmt.Println("attempt", attempt.Number, "is the last:", attempt.Last)
		if !attempt.Last {
			return errors.New("the service of addresses is slow")
		}
		close(done)
		return nil
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	if err := orders.Publish("orders", message.NewMessage("order-1", nil)); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1 is the last: false
	// attempt 2 is the last: true
}

// A migration tool makes the tables, where programs may not: these files, in this order.
func ExampleSchema() {
	files, err := fs.Glob(spillway.Schema(), "postgres/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(slices.IsSorted(files), files[0])
	// Output: true postgres/0001_versions.sql
}

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
