package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
)

// A payment is booked once, by a statement that takes the message's key along.
func ExampleNew() {
	db, err := sql.Open("pgx", os.Getenv("SHOP")) // postgres://...
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store, err := pgxstore.New(context.Background(), db, "shop")
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "billing", // in a router the handler's name serves
	})
	if err != nil {
		log.Fatal(err)
	}
	book := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(),
			`INSERT INTO bookings (payment, amount) VALUES ($1, $2)`, msg.UUID, 30)
		if errors.Is(err, idempotency.ErrApplied) {
			fmt.Println("booked before")
		}
		return nil, err
	})
	for range 2 { // the second time the handler says that the payment was
		if _, err := book(message.NewMessageWithContext(context.Background(), "payment-1", nil)); err != nil {
			log.Fatal(err)
		}
	}
}
