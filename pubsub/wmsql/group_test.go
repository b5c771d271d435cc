package wmsql_test

import (
	"slices"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
		take(b.subscriber(ours, func(c *wmsql.SubscriberConfig) { c.Schema = b.stockSchema() }), 5)
		take(b.stockSubscriber(stock), 20)
		take(b.subscriber(ours), 20)
		testkit.Check(t, slices.Equal(got, want), "%q", got)
	})
}
