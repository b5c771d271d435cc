package idempotency_test

import (
	"database/sql"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature I2: what the receiver costs beside a handler with a transaction of its own.
func BenchmarkReceiver(b *testing.B) {
	b.Run("SQLite", func(b *testing.B) {
		benchmarkReceiver(b, openWithEffects, effect, `INSERT INTO effects VALUES ($1)`,
			storeOn)
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		benchmarkReceiver(b, openPostgres, effect, `INSERT INTO effects VALUES ($1)`,
			storeOn)
	})
	for name, settings := range map[string]string{"MySQL": "interpolateParams=false", "MySQL, interpolateParams": "interpolateParams=true"} {
		b.Run(name, func(b *testing.B) {
			open := func(t testing.TB) *sql.DB { return openMySQLWith(t, settings) }
			benchmarkReceiver(b, open, effectMySQL, `INSERT INTO effects VALUES (?)`,
				storeOn)
		})
	}
}

func benchmarkReceiver(b *testing.B, open func(testing.TB) *sql.DB, effect message.HandlerFunc, insert string, store func(*sql.DB) idempotency.Store) {
	b.Run("own transaction", func(b *testing.B) {
		db := open(b)
		benchmark(b, func(msg *message.Message) ([]*message.Message, error) {
			tx, err := db.BeginTx(msg.Context(), nil)
			if err != nil {
				return nil, err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(msg.Context(), insert, msg.UUID); err != nil {
				return nil, err
			}
			return nil, tx.Commit()
		})
	})
	b.Run("receiver", func(b *testing.B) {
		db := open(b)
		benchmark(b, newReceiver(b, store(db), idempotency.ReceiverConfig{}).Middleware(effect))
	})
	b.Run("receiver, one output", func(b *testing.B) {
		db := open(b)
		out := []*message.Message{message.NewMessage("out", make([]byte, 1024))}
		benchmark(b, newReceiver(b, store(db), idempotency.ReceiverConfig{}).Middleware(
			func(msg *message.Message) ([]*message.Message, error) {
				_, err := effect(msg)
				return out, err
			}))
	})
	b.Run("duplicate", func(b *testing.B) {
		db := open(b)
		h := newReceiver(b, store(db), idempotency.ReceiverConfig{}).Middleware(effect)
		benchmark(b, func(*message.Message) ([]*message.Message, error) { return h(newMessage("same")) })
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
