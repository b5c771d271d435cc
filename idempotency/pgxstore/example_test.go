package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
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

// The example, on a real server.
func TestExample(t *testing.T) {
	address := postgrestest.Schema(t)
	db := postgrestest.Open(t, address)
	testkit.Must(db.Exec(`CREATE TABLE bookings (payment text NOT NULL, amount int NOT NULL)`))
	t.Setenv("SHOP", address)
	read, write, err := os.Pipe()
	testkit.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = write
	func() {
		defer func() { os.Stdout = stdout; _ = write.Close() }()
		ExampleNew()
	}()
	said, err := io.ReadAll(read)
	testkit.Check(t, err == nil && string(said) == "booked before\n" && rows(t, db, "bookings") == 1,
		"%q, %v", said, err)
}
