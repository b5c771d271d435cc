package wmsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A handler whose writes, outputs, dead letters and acknowledgements commit together.
func Example() {
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	sub, err := wmsql.NewSubscriber(context.Background(), db, wmsql.SubscriberConfig{ConsumerGroup: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	dead, err := wmsql.NewPublisher(context.Background(), db, wmsql.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	invoices, err := wmsql.NewPublisher(context.Background(), db, wmsql.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := invoices.InitializeTopics("invoices"); err != nil {
		log.Fatal(err)
	}
	keys, err := wmsql.Join(context.Background(), sub, "shop")
	if err != nil {
		log.Fatal(err)
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher:   dead,
		Idempotency: keys,
		Queue:       poison.QueueConfig{Origin: wmsql.Origin},
	})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	router.AddHandler("billing", "orders", sub, "invoices", invoices, func(msg *message.Message) ([]*message.Message, error) {
		tx := idempotency.Tx(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), `UPDATE account SET balance = balance - 1`); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage("", msg.Payload)}, nil
	})
	if behind, err := sub.Backlog(context.Background(), "orders"); err == nil {
		fmt.Println(behind, "orders wait")
	}
	if err := router.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Without a receiver a handler's own messages are published in its message's transaction, by the message's context.
func ExamplePublisher_Publish() {
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	pub, err := wmsql.NewPublisher(context.Background(), db, wmsql.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	_ = func(msg *message.Message) error {
		return pub.Publish("invoices", message.NewMessageWithContext(msg.Context(), "", msg.Payload))
	}
}
