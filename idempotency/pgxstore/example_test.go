package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A payment is booked once, by a statement that takes the message's key along.
func ExampleNew() {
	db := must(sql.Open("pgx", os.Getenv("SHOP"))) // postgres://...
	defer func() { _ = db.Close() }()
	store := must(pgxstore.New(context.Background(), db, "shop"))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "billing", // in a router the handler's name serves
	}))
	book := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(),
			`INSERT INTO bookings (payment, amount) VALUES ($1, $2)`, msg.UUID, 30)
		if errors.Is(err, idempotency.ErrApplied) {
			fmt.Println("booked before")
		}
		return nil, err
	})
	for range 2 { // the second time the handler says that the payment was
		must(book(message.NewMessageWithContext(context.Background(), "payment-1", nil)))
	}
}
