package wmsql_test

import (
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/draining"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature V5: a dry run of a drain moves no position, and a drain that was cut off goes on where its group is.
func TestDraining(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		testkit.NoError(t, b.pub.InitializeTopics(b.topic+".dlq"))
		draining.Test(t, draining.Broker{
			Topic: b.topic, Publisher: b.pub,
			Subscriber: func() draining.Subscriber {
				return b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "redrive" })
			},
			InDoubt: 10, // SubscriberConfig.Batch
		})
	})
}

// Browse reads more than a page, begins behind what the group acked, and needs no group.
func TestBrowse(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := batchOf("id", 230)
		b.publishAtOnce(ids...)
		browse := func(most int) (seen []string) {
			sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "take" })
			testkit.NoError(t, sub.Browse(t.Context(), b.topic, func(msg *message.Message) bool {
				seen = append(seen, msg.UUID)
				return len(seen) < most
			}))
			return seen
		}
		testkit.Check(t, slices.Equal(browse(1000), ids), "not all are seen")
		b.take(b.topic, 7)
		testkit.Check(t, slices.Equal(browse(150), ids[7:157]), "others are seen")
	})
}
