// Command quickstart protects a router with a dead letter channel, in one process and one file.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
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
	folder := must(os.MkdirTemp("", "spillway-"))
	defer os.RemoveAll(folder)
	db := must(sql.Open("sqlite", filepath.Join(folder, "orders.db")))
	defer db.Close()
	must(db.Exec(`CREATE TABLE invoices (order_id TEXT)`))
	orders, invoices := gochannel.NewGoChannel(gochannel.Config{}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	printed := must(invoices.Subscribe(context.Background(), "invoices"))

	router := must(message.NewRouter(message.RouterConfig{}, nil))
	dlc := must(spillway.New(context.Background(),
		spillway.Config{Service: "shop", DB: db, Breaker: &breaker.Config{}}))
	dlc.Attach(router)
	known := make(chan struct{})
	router.AddHandler("billing", "orders", orders, "invoices", invoices,
		func(msg *message.Message) ([]*message.Message, error) {
			if string(msg.Payload) == "of a new customer" {
				select {
				case <-known:
				default:
					return nil, classify.Permanent(errors.New("no such customer"), classify.Reason("no_customer"))
				}
			}
			if _, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO invoices VALUES (?)`, msg.UUID); err != nil {
				return nil, err // commits with the message's key, or not at all
			}
			return []*message.Message{message.NewMessage("", []byte("invoice for "+msg.UUID))}, nil
		})
	go func() { must(0, router.Run(context.Background())) }()
	<-router.Running()

	must(0, orders.Publish("orders", message.NewMessage("order-1", nil),
		message.NewMessage("order-2", []byte("of a new customer"))))
	show(<-printed)
	for len(must(dlc.Letters().List(context.Background(), letters.Filter{}))) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, group := range must(dlc.Letters().Groups(context.Background(), letters.Filter{})) {
		fmt.Printf("%d dead letter(s) in %s: %s (%s)\n", group.Count, group.DeadLetterTopic, group.Description, group.Reason)
	}
	close(known) // the cause is fixed
	report := must(redrive.Drain(context.Background(), dlc.Letters(), orders,
		redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}))
	fmt.Println("redriven:", report.Redriven)
	show(<-printed)
	must(0, router.Close())
}

func show(msg *message.Message) {
	fmt.Println(string(msg.Payload))
	msg.Ack()
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
