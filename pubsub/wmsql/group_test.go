package wmsql_test

import (
	"slices"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// It takes the place of watermill-sql's subscriber and is taken back: each message comes once, in order.
func TestTakesTheirPlace(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		want, got := batchOf("m", 120), []string{}
		b.publish(want...)
		take := func(sub message.Subscriber, n int) {
			t.Helper()
			messages := b.messages(sub)
			for range n {
				msg := testkit.Receive(t, "a message", messages)
				got = append(got, msg.UUID)
				msg.Ack()
			}
			left := 120 - len(got)
			if _, ours := sub.(*wmsql.Subscriber); !ours { // whose Close may forget what was acked just now
				b.until("it is acknowledged", func() bool { return b.backlog(b.topic, "billing") == left })
			}
			testkit.NoError(t, sub.Close())
			testkit.Equal(t, "left", b.backlog(b.topic, "billing"), left)
		}
		stock := wsql.SubscriberConfig{ // whose batch commits as one
			ConsumerGroup: "billing", SchemaAdapter: b.stockSchema(10), PollInterval: 10 * time.Millisecond,
		}
		ours := func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "billing" }
		take(b.stockSubscriber(stock), 40)
		take(b.subscriber(ours), 35)
		take(b.subscriber(ours, func(c *wmsql.SubscriberConfig) { c.Schema = b.embedded() }), 5)
		take(b.stockSubscriber(stock), 20)
		take(b.subscriber(ours), 20)
		testkit.Check(t, slices.Equal(got, want), "%q", got)
	})
}

// Messages of transactions that ran at the same time come in the order of their transactions, whatever their numbers
// are: who compares numbers alone passes over those of a later transaction with lower numbers.
func TestInterleavedTransactions(t *testing.T) {
	b := on(t, databases.Postgres)
	first := b.begin()
	testkit.Must(first.Exec(`SELECT pg_current_xact_id()`))
	b.publish("low number")
	query := testkit.Must(b.stockSchema().InsertQuery(b.topic,
		message.Messages{message.NewMessage("high number", nil)}))
	testkit.Must(first.Exec(query.Query, query.Args...))
	testkit.NoError(t, first.Commit())
	b.comes(b.consume(func(c *wmsql.SubscriberConfig) { c.Batch = 1 }), "high number", "low number")
}
