package wmsql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func restart(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true }

func batchOf(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%d", prefix, i))
	}
	return ids
}

// move adds to transaction ids: of one that is restored into another server they are far ahead.
func move(column string, by int) string {
	return fmt.Sprintf(`%[1]s = ((%[1]s::text::bigint + %[2]d)::text::xid8)`, column, by)
}

// handled handles messages, and returns a subscriber that has begun if it is running, and its log.
func (b *bench) handled(ids []string, running bool) (*wmsql.Subscriber, <-chan *message.Message, *testkit.Log) {
	b.Helper()
	b.publish(ids...)
	b.handle(ids...)
	log := &testkit.Log{}
	sub := b.subscriber(impatient, func(c *wmsql.SubscriberConfig) { c.Logger = log })
	if !running {
		return sub, nil, log
	}
	return sub, b.messages(sub), log
}

// handle consumes ids in a subscription that ends then.
func (b *bench) handle(ids ...string) {
	b.Helper()
	sub := b.subscriber()
	messages := b.messages(sub)
	for range ids {
		testkit.Receive(b, "a message", messages).Ack()
	}
	b.drained()
	testkit.NoError(b, sub.Close())
}

func (b *bench) refuses(what string) {
	b.Helper()
	_, err := b.subscriber().Subscribe(b.Context(), b.topic)
	testkit.Is(b, err, wmsql.ErrPositionAhead)
	testkit.Says(b, err, "RestartIfAhead")
	testkit.Require(b, err != nil, "%s: subscribed", what)
}

func (b *bench) silent(messages <-chan *message.Message) {
	b.Helper()
	select {
	case msg := <-messages:
		b.Errorf("%s was delivered, and the messages before it never will be", msg.UUID)
	case <-time.After(300 * time.Millisecond):
	}
}

// Feature P1: a position that cannot be of this table is refused, also while it runs. RestartIfAhead passes none over.
func TestPositionAhead(t *testing.T) {
	for _, n := range []int{0, 25} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, running %t", n, running), func(t *testing.T) {
				t.Parallel()
				onEach(t, func(t *testing.T, b *bench) {
					old, fresh := batchOf("old", 20), batchOf("new", n)
					sub, messages, log := b.handled(old, running)
					if b.isPostgres() {
						b.exec(`UPDATE ` + b.table(b.topic) + ` SET ` + move("transaction_id", 1_000_000))
						b.exec(`UPDATE ` + b.offsetsTable() + ` SET ` +
							move("last_processed_transaction_id", 1_000_000))
					} else {
						b.exec(`TRUNCATE TABLE ` + b.table(b.topic))
						old = nil
					}
					b.publishAtOnce(fresh...)
					if running {
						b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
						b.silent(messages)
					}
					testkit.NoError(t, sub.Close())
					b.refuses("ahead")
					got := b.consume(restart)
					b.publish("last")
					var seen deliveries
					want := append(append(old, fresh...), "last")
					for range want {
						seen.add(testkit.Receive(t, "a message", got))
					}
					for _, id := range want {
						testkit.Equal(t, "deliveries of "+id, seen.get()[id], 1)
					}
					b.drained()
					b.messages(b.subscriber())
				})
			})
		}
	}
}

// A position is good where its row is gone, or an operator moved it, or watermill-sql's subscriber wrote it.
func TestPositionIsGood(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		log := &testkit.Log{}
		ids := b.consume(func(c *wmsql.SubscriberConfig) { c.Logger = log })
		check := func(what string) {
			t.Helper()
			testkit.Check(t, !log.Is(wmsql.ErrPositionAhead), "%s: the running subscription refuses", what)
			sub := b.subscriber()
			_, err := sub.Subscribe(t.Context(), b.topic)
			testkit.Check(t, err == nil, "%s: %v", what, err)
			testkit.Is(t, sub.Close(), nil)
		}
		handled := func(want ...string) { t.Helper(); b.comes(ids, want...); b.drained() }
		check("nothing was published")
		b.publish("a", "b", "c", "d")
		handled("a", "b", "c", "d")
		check("all was handled")
		b.exec(`DELETE FROM ` + b.table(b.topic) + ` WHERE uuid = 'd'`)
		check("the row of the position is gone")
		b.exec(`DELETE FROM ` + b.table(b.topic))
		b.still(ids, 200*time.Millisecond)
		check("all rows are gone")
		if !b.isPostgres() {
			b.exec(`SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_TABLE_OPTIONS')`) // of some connections
			check("the next number is not shown")
		}
		b.publish("e", "f")
		handled("e", "f")
		check("new ones have come")
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET offset_acked = offset_acked - 1`)
		handled("f")
		check("the position was set back")
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET offset_acked = offset_acked` + b.sql(``, `, offset_consumed = offset_acked`))
		check("watermill-sql wrote the position")
		b.publish("g")
		b.comes(ids, "g")
	})
}

// Feature P1: a restored table whose messages have ids that are yet to be given out is refused, too.
func TestMessagesAhead(t *testing.T) {
	b := on(t, databases.Postgres)
	b.publish("a", "b", "c")
	b.exec(`UPDATE ` + b.table(b.topic) + ` SET ` + move("transaction_id", 1_000_000) + ` WHERE uuid <> 'a'`)
	b.refuses("ahead")
	b.comes(b.consume(restart), "a", "b", "c")
}
