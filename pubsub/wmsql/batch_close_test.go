package wmsql_test

import (
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A handler that settles its message within the grace of Close commits it, with those before it. No other begins then.
func TestBatchCloseSettles(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for round := range 8 {
			b.closeSettles(strconv.Itoa(round))
		}
	})
}

func (b *bench) closeSettles(round string) {
	b.Helper()
	var seen deliveries
	busy := make(chan struct{})
	first, second, third := "a"+round, "b"+round, "c"+round
	b.publish(first, second, third)
	sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = patience })
	stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
		if seen.add(msg.UUID); msg.UUID == second {
			close(busy)
			<-msg.Context().Done() // Close has begun
		}
		return b.whole(msg)
	})
	<-busy
	if err := sub.Close(); err != nil {
		b.Fatal(err)
	}
	if effects, outputs := b.effects(), b.outputs(); len(effects[first]) != 2 || len(effects[second]) != 2 || outputs[first]+outputs[second] != 2 {
		b.Errorf("effects %v, outputs %v", effects, outputs)
	}
	if got := seen.get(); got[second] != 1 || got[third] != 0 || b.backlog(b.topic, "") != 1 {
		b.Errorf("deliveries %v, %d are left", got, b.backlog(b.topic, ""))
	}
	stop()
	stop = b.run(b.subscriber(), b.whole)
	b.drained()
	stop()
	if effects, outputs := b.effects(), b.outputs(); len(effects[third]) != 2 || outputs[third] != 1 {
		b.Errorf("effects %v, outputs %v", effects, outputs)
	}
}

// One that does not is cut off in the middle: nothing of it is there, nor of those before it in the batch, and what it
// says later is refused.
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
		b.ends("Close, although the handler does not return", func() {
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
		})
		if effects, outputs, left := b.effects(), b.outputs(), b.backlog(b.topic, ""); len(effects)+len(outputs) > 0 || left != 3 {
			t.Errorf("effects %v, outputs %v, %d are left", effects, outputs, left)
		}
		close(closed)
		for range 2 {
			if err := <-late; !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("late: %v", err)
			}
		}
		stop()
		b.run(b.subscriber(), b.whole)
		b.account(ids)
	})
}

// An output that waits for a lock is cut off as a handler is, and Close does not wait for it either.
func TestBatchCloseLocked(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		say := func(query string) {
			if _, err := conn.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
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
		b.ends("Close, although the lock is held", func() {
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
		})
		say(b.sql(`ROLLBACK`, `UNLOCK TABLES`))
		stop()
		b.run(b.subscriber(), b.whole)
		b.account([]string{"a"})
	})
}
