package idempotency_test

import (
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature I2: what the receiver costs beside a handler with a transaction of its own.
func BenchmarkReceiver(b *testing.B) {
	b.Run("own transaction", func(b *testing.B) {
		db := openWithEffects(b)
		benchmark(b, func(msg *message.Message) ([]*message.Message, error) {
			tx, err := db.BeginTx(msg.Context(), nil)
			if err != nil {
				return nil, err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(msg.Context(), `INSERT INTO effects VALUES (?)`, msg.UUID); err != nil {
				return nil, err
			}
			return nil, tx.Commit()
		})
	})
	b.Run("receiver", func(b *testing.B) {
		db := openWithEffects(b)
		benchmark(b, newReceiver(b, idempotency.ReceiverConfig{Store: idempotency.SQLite(db)}).Middleware(effect))
	})
	b.Run("receiver, one output", func(b *testing.B) {
		db := openWithEffects(b)
		out := []*message.Message{message.NewMessage("out", make([]byte, 1024))}
		benchmark(b, newReceiver(b, idempotency.ReceiverConfig{Store: idempotency.SQLite(db)}).Middleware(
			func(msg *message.Message) ([]*message.Message, error) {
				_, err := effect(msg)
				return out, err
			}))
	})
}

func benchmark(b *testing.B, h message.HandlerFunc) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := h(newMessage(strconv.Itoa(i))); err != nil {
			b.Fatal(err)
		}
	}
}
