// Command quickstart protects a router with a dead letter channel, in one process and one file. Its database is
// shop.db, in the folder where it runs. Run it, look at the dead letter, and run it with -fixed: docs/start.md tells
// the story.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func main() {
	fixed := flag.Bool("fixed", false, "the new customer is known: bring the dead letters back")
	flag.Parse()
	run("shop.db", *fixed)
}

func run(file string, fixed bool) {
	ctx := context.Background()
	// readers and writers wait for each other
	db := must(sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"))
	defer db.Close()
	must(db.Exec(`CREATE TABLE IF NOT EXISTS invoices (order_id TEXT)`))
	orders := gochannel.NewGoChannel(gochannel.Config{}, nil)

	router := must(message.NewRouter(message.RouterConfig{}, nil))
	dlc := must(spillway.New(ctx, spillway.Config{Service: "shop", DB: db, Breaker: &breaker.Config{}}))
	dlc.Attach(router)
	router.AddConsumerHandler("billing", "orders", orders, func(msg *message.Message) error {
		if string(msg.Payload) == "of a new customer" && !fixed {
			return classify.Permanent(errors.New("no such customer"), classify.Reason("no_customer"))
		}
		_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO invoices VALUES (?)`, msg.UUID)
		return err // the invoice commits with the message's key, or not at all
	})
	go func() { must(0, router.Run(ctx)) }()
	<-router.Running()

	if fixed {
		report := must(redrive.Drain(ctx, dlc.Letters(), orders,
			redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}))
		fmt.Println("redriven:", report.Redriven)
	} else {
		must(0, orders.Publish("orders", message.NewMessage("order-1", nil),
			message.NewMessage("order-2", []byte("of a new customer"))))
	}
	var invoices, waiting int
	for invoices+waiting < 2 { // a service would run on
		time.Sleep(10 * time.Millisecond)
		must(0, db.QueryRow(`SELECT count(*) FROM invoices`).Scan(&invoices))
		waiting = int(must(dlc.Letters().Count(ctx, letters.Filter{})))
	}
	for _, group := range must(dlc.Letters().Groups(ctx, letters.Filter{})) {
		fmt.Printf("%d dead letter(s) in %s: %s (%s)\n", group.Count, group.DeadLetterTopic, group.Description,
			group.Reason)
	}
	fmt.Println("invoices:", invoices)
	must(0, router.Close())
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
