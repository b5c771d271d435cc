package wmsql_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Promise P3: the connection is lost under a handler that says nothing to the database. Its context ends long before
// the ack deadline, nothing is set aside, and the message comes again.
func TestConnectionLostUnderIdleHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		id, kill := `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend($1)`
		if b.db.QueryRow(id).Scan(new(int64)) != nil {
			id, kill = `SELECT CONNECTION_ID()`, `KILL ?`
		}
		var times atomic.Int32
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.AckDeadline = time.Hour })
		b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			if times.Add(1) > 1 {
				return nil, b.write(msg, "whole")
			}
			if err := b.write(msg, "half"); err != nil {
				return nil, err
			}
			var connection int64
			if err := idempotency.Tx(msg.Context()).QueryRow(id).Scan(&connection); err != nil {
				return nil, err
			}
			if _, err := b.db.Exec(kill, connection); err != nil {
				t.Errorf("kill: %v", err)
			}
			select {
			case <-msg.Context().Done():
				if err := msg.Context().Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("the context ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("the context lives on")
			}
			return nil, msg.Context().Err()
		})
		b.publish("a")
		b.until("it is handled again", func() bool { return len(b.effects()["a"]) > 0 })
		if steps := b.effects()["a"]; len(steps) != 1 || steps[0] != "whole" {
			t.Errorf("effects %v", steps)
		}
		if n := b.backlog(b.topic+".dlq", ""); n != 0 {
			t.Errorf("%d letters", n)
		}
	})
}
