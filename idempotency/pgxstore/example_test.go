package pgxstore_test

import (
	"context"
	"database/sql"
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

// A payment is booked once, in the transaction of the message's key.
func ExampleTx() {
	db := must(sql.Open("pgx", os.Getenv("SHOP"))) // postgres://...
	defer func() { _ = db.Close() }()
	store := must(pgxstore.New(context.Background(), db, "shop"))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "billing", // in a router the handler's name serves
	}))
	book := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := pgxstore.Tx(msg.Context()).Exec(msg.Context(),
			`INSERT INTO bookings (payment, amount) VALUES ($1, $2)`, msg.UUID, 30)
		return nil, err
	})
	for range 2 { // the second time it is absorbed
		must(book(message.NewMessageWithContext(context.Background(), "payment-1", nil)))
	}
}
