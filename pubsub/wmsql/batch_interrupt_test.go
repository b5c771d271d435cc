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
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A statement that its own context interrupts ends the transaction: counted, and its message is set aside in the end.
func TestBatchInterrupts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) { b.interrupted(b, "", "1") })
}

// So it is with drivers that notice only with the next statement that the connection is gone, as lib/pq.
func TestBatchInterruptsAnswered(t *testing.T) {
	b := on(t, databases.Postgres)
	db := testkit.Must(sql.Open("postgres", b.address)) // lib/pq
	t.Cleanup(func() { _ = db.Close() })
	b.interrupted(b.over(db), "57014", "30") // on a busy machine, lib/pq is slow to cancel
}

func (b *bench) interrupted(own *bench, state, seconds string) {
	b.Helper()
	var seen deliveries
	ids := []string{"a", "own", "b", "deadline", "c"}
	b.publish(ids...)
	own.run(own.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
		*wmsql.MaxDeliveries(c), c.AckDeadline, *wmsql.SettleGrace(c) = 2, 500*time.Millisecond, patience
	}), func(msg *message.Message) ([]*message.Message, error) {
		seen.add(msg.UUID)
		if msg.UUID != "own" && msg.UUID != "deadline" {
			return own.whole(msg)
		}
		err := b.write(msg, "half")
		ctx, cancel := msg.Context(), func() {}
		if msg.UUID == "own" {
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		}
		defer cancel()
		_, slow := txOf(ctx).ExecContext(ctx, b.sleep(seconds))
		testkit.Check(b, slow != nil && postgres.State(slow) == state, "the statement was not interrupted: %v", slow)
		return nil, classify.Permanent(errors.Join(err, slow))
	})
	b.account(ids, "own", "deadline")
	b.wantAside(&seen, 2, "own", "deadline")
}

// What the database refuses only in the COMMIT fails the batch once and then its message alone.
func TestBatchCommitRefused(t *testing.T) {
	b := on(t, databases.Postgres) // MariaDB has no deferred constraints
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
	testkit.Equal(t, "set aside for", b.aside("orphan"), setAside)
	got := seen.get()
	testkit.Check(t, got["orphan"] <= 4 && got["a"] <= 2 && got["c"] <= 3, "deliveries %v", got)
}

// Promise P4: what is no fault of a message does not set it aside; what loses its transaction every time does, late.
func TestBatchLost(t *testing.T) {
	for name, row := range map[string]struct {
		max, lost, deliveries int
		aside                 []string
	}{
		"often": {max: 2, lost: 6, deliveries: 7}, "always": {max: 1, lost: 1000, deliveries: 10, aside: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				var seen deliveries
				ids := []string{"a", "b", "c"}
				b.publish(ids...)
				b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
					*wmsql.MaxDeliveries(c), *wmsql.MaxNackBackoff(c) = row.max, 10*time.Millisecond
				}), func(msg *message.Message) ([]*message.Message, error) {
					if n := seen.add(msg.UUID); msg.UUID == "b" && n <= row.lost {
						return nil, classify.Permanent(errors.Join(b.write(msg, "half"), b.cutOff(msg)))
					}
					return b.whole(msg)
				}, once)
				b.account(ids, row.aside...)
				testkit.Equal(t, "deliveries", seen.get()["b"], row.deliveries)
				testkit.Check(t, row.aside == nil || b.aside("b") == setAside, "set aside for %q", b.aside("b"))
			})
		})
	}
}
