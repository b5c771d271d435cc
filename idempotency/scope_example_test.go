package idempotency_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// A handler's unit test gives it a transaction of its own, and rolls back what the handler wrote.
func ExampleWithTx() {
	book := func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).Exec(`UPDATE account SET balance = balance - 30`)
		return nil, err
	}

	db, cleanUp := accounts()
	defer cleanUp()
	tx := must(db.Begin())
	defer tx.Rollback()
	msg := message.NewMessage("order-1", nil)
	msg.SetContext(idempotency.WithTx(context.Background(), tx))
	_, err := book(msg)

	var left int
	_ = tx.QueryRow(`SELECT balance FROM account`).Scan(&left)
	fmt.Println(left, err)
	// Output: 70 <nil>
}
