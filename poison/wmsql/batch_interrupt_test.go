package wmsql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison/wmsql"
)

// A statement that its own context interrupts takes the connection along, and with it the transaction. That is counted,
// once for each delivery, and the message is set aside in the end; the others are not.
func TestBatchInterrupts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := []string{"a", "own", "b", "deadline", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
			c.MaxDeliveries, c.AckDeadline, c.SettleGrace = 2, 300*time.Millisecond, patience
		}), func(msg *message.Message) ([]*message.Message, error) {
			seen.add(msg.UUID)
			ctx, cancel := msg.Context(), func() {}
			switch msg.UUID {
			case "own":
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			case "deadline":
			default:
				return b.whole(msg)
			}
			defer cancel()
			err := b.write(msg, "half")
			_, slow := txOf(ctx).ExecContext(ctx, b.sleep("1"))
			if slow == nil {
				t.Error("the statement was not interrupted")
			}
			return nil, classify.Permanent(errors.Join(err, slow))
		})
		b.account(ids, "own", "deadline")
		for _, id := range []string{"own", "deadline"} {
			if letter := b.letters()[id][0]; letter.Failure.Reason != setAside || seen.get()[id] != 2 {
				t.Errorf("%s: %q after %d deliveries", id, letter.Failure.Reason, seen.get()[id])
			}
		}
	})
}

// What fails in the COMMIT alone, fails the batch once and then its message alone.
func TestBatchCommitRefused(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("MariaDB has no deferred constraints")
		}
		var seen deliveries
		b.exec(`CREATE TABLE parents (id INT PRIMARY KEY)`)
		b.exec(`CREATE TABLE children (parent INT REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
		ids := []string{"a", "orphan", "c"}
		b.publish(ids...)
		b.run(b.subscriber(impatient), func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID); msg.UUID == "orphan" {
				if _, err := txOf(msg.Context()).Exec(`INSERT INTO children VALUES (1)`); err != nil {
					return nil, err
				}
			}
			return b.whole(msg)
		})
		b.account(ids, "orphan")
		if got := seen.get(); got["orphan"] > 4 || got["a"] > 2 || got["c"] > 3 {
			t.Errorf("deliveries %v", got)
		}
	})
}

// What nobody can be blamed for never sets a message aside, however often it happens.
func TestBatchUncounted(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { c.MaxDeliveries = 2 }), func(msg *message.Message) ([]*message.Message, error) {
			if n := seen.add(msg.UUID); msg.UUID == "b" && n <= 6 {
				return nil, classify.Permanent(errors.Join(b.write(msg, "half"), b.cutOff(msg)))
			}
			return b.whole(msg)
		}, once, func(c *spillway.Config) { c.Queue.Publisher, c.Publisher = c.Publisher, nil })
		b.account(ids)
		if got := seen.get(); got["b"] != 7 {
			t.Errorf("deliveries %v", got)
		}
	})
}
