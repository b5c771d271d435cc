package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// A handler's unit test gives it a transaction of its own, and rolls back what the handler wrote.
func ExampleWithTx() {
	book := func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO bookings VALUES (?)`, msg.UUID)
		return nil, err
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "test.db"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE bookings (id TEXT)`); err != nil {
		panic(err)
	}

	tx, err := db.Begin()
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	msg := message.NewMessage("order-1", nil)
	msg.SetContext(idempotency.WithTx(context.Background(), tx))
	_, err = book(msg)

	var booked int
	_ = tx.QueryRow(`SELECT count(*) FROM bookings`).Scan(&booked)
	fmt.Println(booked, err)
	// Output: 1 <nil>
}
