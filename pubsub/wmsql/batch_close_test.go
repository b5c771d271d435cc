package wmsql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A handler that settles its message within the grace of Close commits it, with those before it. No other begins then.
func TestBatchCloseSettles(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		busy := make(chan struct{})
		b.publish("a", "b", "c")
		sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = patience })
		stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID); msg.UUID == "b" {
				close(busy)
				<-msg.Context().Done() // Close has begun
			}
			return b.whole(msg)
		})
		<-busy
		testkit.NoError(b, sub.Close())
		effects, outputs, left := b.effects(), b.outputs(), b.backlog(b.topic, "")
		testkit.Check(t, len(effects["a"]) == 2 && len(effects["b"]) == 2 && outputs["a"]+outputs["b"] == 2 &&
			left == 1,
			"effects %v, outputs %v, %d are left", effects, outputs, left)
		testkit.Equal(t, "deliveries", seen.String(), "a b")
		b.handsOver(stop, "a", "b", "c")
	})
}

// One that does not is cut off: nothing of its batch is there, and what it says later is refused.
func TestBatchCloseCuts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		busy, closed, late := make(chan struct{}), make(chan struct{}), make(chan error, 2)
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = 100 * time.Millisecond })
		stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID != "b" {
				return b.whole(msg)
			}
			err := b.write(msg, "half")
			close(busy)
			<-closed
			late <- b.write(msg, "late")
			late <- b.pub.Publish(b.outs, message.NewMessageWithContext(msg.Context(), "", []byte("late")))
			return nil, err
		})
		<-busy
		testkit.Within(t, "Close, although the handler does not return", func() { testkit.Is(t, sub.Close(), nil) })
		effects, outputs, left := b.effects(), b.outputs(), b.backlog(b.topic, "")
		testkit.Check(t, len(effects)+len(outputs) == 0 && left == 3, "effects %v, outputs %v, %d are left", effects,
			outputs, left)
		close(closed)
		for range 2 {
			testkit.Is(t, <-late, sql.ErrTxDone)
		}
		b.handsOver(stop, ids...)
	})
}

// An output that waits for a lock is cut off as a handler is, and Close does not wait for it either.
func TestBatchCloseLocked(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		conn := testkit.Must(b.db.Conn(t.Context()))
		defer func() { _ = conn.Close() }()
		say := func(query string) { testkit.Must(conn.ExecContext(t.Context(), query)) }
		say(b.sql(`BEGIN; LOCK TABLE `+b.table(b.outs), `LOCK TABLES `+b.table(b.outs)+` WRITE`))
		sub := b.subscriber(impatient, func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 1000 })
		var seen deliveries
		stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			seen.add(msg.UUID)
			return b.whole(msg)
		})
		often := 2
		if !b.isPostgres() { // the server goes on waiting, with the position in its hands
			often = 1
		}
		b.until("it comes again", func() bool { return seen.get()["a"] >= often })
		testkit.Within(t, "Close, although the lock is held", func() { testkit.Is(t, sub.Close(), nil) })
		say(b.sql(`ROLLBACK`, `UNLOCK TABLES`))
		b.handsOver(stop, "a")
	})
}
