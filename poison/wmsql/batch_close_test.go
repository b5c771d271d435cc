package wmsql_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison/wmsql"
)

// A handler that settles its message within the grace of Close commits it, with those before it. No other begins then.
func TestBatchCloseSettles(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		busy := make(chan struct{})
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { c.SettleGrace = patience })
		stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID); msg.UUID == "b" {
				close(busy)
				<-msg.Context().Done() // Close has begun
			}
			return b.whole(msg)
		})
		<-busy
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if effects, outputs := b.effects(), b.outputs(); len(effects["a"]) != 2 || len(effects["b"]) != 2 || outputs["a"]+outputs["b"] != 2 {
			t.Errorf("effects %v, outputs %v", effects, outputs)
		}
		if got := seen.get(); got["b"] != 1 || got["c"] != 0 || b.backlog(b.topic, "") != 1 {
			t.Errorf("deliveries %v, %d are left", got, b.backlog(b.topic, ""))
		}
		stop()
		b.run(b.subscriber(), b.whole)
		b.account(ids)
	})
}

// One that does not is cut off in the middle: nothing of it is there, nor of those before it in the batch, and what it
// says later is refused.
func TestBatchCloseCuts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		busy, closed, late := make(chan struct{}), make(chan struct{}), make(chan error, 2)
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { c.SettleGrace = 100 * time.Millisecond })
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
		begun := time.Now()
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("Close took %s", d)
		}
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
