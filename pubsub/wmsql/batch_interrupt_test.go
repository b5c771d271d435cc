package wmsql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq" // registers "postgres"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A statement that its own context interrupts takes the connection along, and with it the transaction. That is counted,
// once for each delivery, and the message is set aside in the end; the others are not.
func TestBatchInterrupts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := []string{"a", "own", "b", "deadline", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
			*wmsql.MaxDeliveries(c), c.AckDeadline, *wmsql.SettleGrace(c) = 2, 500*time.Millisecond, patience
		}), func(msg *message.Message) ([]*message.Message, error) {
			seen.add(msg.UUID)
			if msg.UUID != "own" && msg.UUID != "deadline" {
				return b.whole(msg)
			}
			err := b.write(msg, "half")
			ctx, cancel := msg.Context(), func() {}
			if msg.UUID == "own" {
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			}
			defer cancel()
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

// What the database refuses only in the COMMIT fails the batch once and then its message alone.
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
		if reason := b.letters()["orphan"][0].Failure.Reason; reason != setAside {
			t.Errorf("set aside for %q", reason)
		}
		if got := seen.get(); got["orphan"] > 4 || got["a"] > 2 || got["c"] > 3 {
			t.Errorf("deliveries %v", got)
		}
	})
}

// What is no fault of a message never sets the message aside, however often it happens.
func TestBatchUncounted(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 2 }), func(msg *message.Message) ([]*message.Message, error) {
			if n := seen.add(msg.UUID); msg.UUID == "b" && n <= 6 {
				return nil, classify.Permanent(errors.Join(b.write(msg, "half"), b.cutOff(msg)))
			}
			return b.whole(msg)
		}, once)
		b.account(ids)
		if got := seen.get(); got["b"] != 7 {
			t.Errorf("deliveries %v", got)
		}
	})
}

// Promise P4: a message under which the transaction is lost every time is set aside in the end, much later.
func TestBatchAlwaysLost(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
			*wmsql.MaxDeliveries(c), *wmsql.MaxNackBackoff(c) = 1, 10*time.Millisecond
		}), func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID); msg.UUID == "b" {
				return nil, classify.Permanent(errors.Join(b.write(msg, "half"), b.cutOff(msg)))
			}
			return b.whole(msg)
		}, once)
		b.account(ids, "b")
		if l := b.letters()["b"]; len(l) != 1 || l[0].Failure.Reason != classify.ReasonMaxDeliveries {
			t.Errorf("letters %+v", l)
		}
		if got := seen.get(); got["b"] != 10 {
			t.Errorf("deliveries %v", got)
		}
	})
}

// A statement that its own context interrupts is counted with drivers as well that ask the server to cancel it, and say
// only with the next statement that the connection is of no use any more, as lib/pq does.
func TestBatchInterruptsAnswered(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		if !b.isPostgres() {
			t.Skip("the driver of MySQL closes the connection")
		}
		own := *b
		var err error
		if own.db, err = sql.Open("postgres", s.address); err != nil { // lib/pq
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.db.Close() })
		var seen deliveries
		ids := []string{"a", "slow", "c"}
		b.publish(ids...)
		own.run(own.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 2 }), func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID); msg.UUID != "slow" {
				return own.whole(msg)
			}
			ctx, cancel := context.WithTimeout(msg.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := txOf(ctx).ExecContext(ctx, b.sleep("5"))
			if postgres.State(err) != "57014" {
				t.Errorf("the server did not answer: %v", err)
			}
			return nil, classify.Permanent(err)
		})
		b.account(ids, "slow")
		if n := seen.get()["slow"]; n != 2 {
			t.Errorf("%d deliveries", n)
		}
	})
}
