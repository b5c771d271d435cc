package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// spend lets the server give out n transaction ids.
func (b *bench) spend(n int) {
	b.Helper()
	for range n {
		b.exec(`SELECT pg_current_xact_id()`)
	}
}

// setPosition sets columns of the table of positions.
func (b *bench) setPosition(to string) {
	b.Helper()
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET ` + to)
}

// setAhead sets the position to a transaction that is yet to begin.
func (b *bench) setAhead(by int) {
	b.Helper()
	b.setPosition(fmt.Sprintf(`last_processed_transaction_id = (pg_current_xact_id()::text::bigint + %d)::text::xid8`,
		by))
}

// Feature P1: a position that is newer than the snapshot of an instance that waited for it is no false alarm.
func TestHandOversAreNoAlarm(t *testing.T) {
	b := on(t, databases.Postgres)
	log := &testkit.Log{}
	logged := func(c *wmsql.SubscriberConfig) { c.Logger = log }
	out := make(chan *message.Message)
	var subs []*wmsql.Subscriber
	for range 3 {
		sub := b.subscriber(logged)
		messages := b.messages(sub)
		subs = append(subs, sub)
		go func() {
			for msg := range messages {
				out <- msg
			}
		}()
	}
	b.publish("0")
	for i := range 10 {
		msg := <-out
		b.until("the others wait for the position", func() bool {
			const waits = `SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0`
			return b.ask(waits, b.topic) == len(subs)-1
		})
		b.publish(fmt.Sprint(i + 1)) // newer than the snapshots of those that wait
		msg.Ack()
	}
	(<-out).Ack()
	b.drained()
	testkit.Check(t, !log.Is(wmsql.ErrPositionAhead), "a false alarm")
	for _, sub := range subs {
		testkit.Is(t, sub.Close(), nil)
	}
}

// Feature P1: overlapping transactions of many publishers are no false alarm.
func TestServerStays(t *testing.T) {
	b := on(t, databases.Postgres)
	const publishers, each = 8, 40
	errs := make(chan error, publishers)
	for p := range publishers {
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				var tx *sql.Tx
				if tx, err = b.db.Begin(); err != nil {
					break
				}
				// The id is given out before the number.
				_, first := tx.Exec(`SELECT pg_current_xact_id(), pg_sleep(random() * 0.005)`)
				_, then := tx.Exec(`INSERT INTO `+b.table(b.topic)+` (uuid, payload, metadata, transaction_id)
					VALUES ($1, 'x', '{}', pg_current_xact_id())`, fmt.Sprintf("%d-%d", p, i))
				err = errors.Join(first, then, tx.Commit())
			}
			errs <- err
		}()
	}
	seen := map[string]bool{}
	for len(seen) < publishers*each {
		log := &testkit.Log{}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Logger = log })
		messages := b.messages(sub)
		for range min(25, publishers*each-len(seen)) {
			msg := testkit.Receive(t, fmt.Sprintf("message %d", len(seen)), messages)
			testkit.Check(t, msg.Ack(), "not acked")
			seen[msg.UUID] = true
		}
		testkit.NoError(t, sub.Close())
		testkit.Require(t, !log.Is(wmsql.ErrPositionAhead), "a false alarm")
	}
	for range publishers {
		testkit.Is(t, <-errs, nil)
	}
}

// Feature P1: a refused position stays refused when the server's transaction ids have passed what it was. With
// RestartIfAhead every message comes.
func TestRefusalStays(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			b, want, fresh := on(t, databases.Postgres), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(want, running)
			b.setAhead(200)
			if running {
				b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
				b.until("the refusal is recorded", func() bool {
					return b.ask(`SELECT count(*) FROM `+b.offsetsTable()+
						` WHERE last_processed_transaction_id::text = $1`, "9223372036854775807") == 1
				})
			} else {
				b.refuses("ahead")
			}
			b.publish(fresh...)
			b.spend(300)
			b.publish("behind")
			want = append(append(want, fresh...), "behind")
			if running {
				b.silent(messages)
			}
			b.refuses("the ids have passed the position")
			b.refuses("and again")
			testkit.NoError(t, sub.Close()) // it would take its turn in the group
			b.comes(b.consume(restart), want...)
			b.drained()
		})
	}
}

// Feature P1: a position that a person sets after a refusal is good.
func TestRefusalAnswered(t *testing.T) {
	b := on(t, databases.Postgres)
	b.handled([]string{"a", "b"}, false)
	b.setAhead(100_000)
	b.refuses("ahead")
	b.setPosition(`(offset_acked, last_processed_transaction_id) =
		(SELECT "offset", transaction_id FROM ` + b.table(b.topic) + ` WHERE uuid = 'a')`)
	b.handle("b")
}
