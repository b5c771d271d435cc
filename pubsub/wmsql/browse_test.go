package wmsql_test

import (
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit/draining"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature V5: a dry run of a drain moves no position, and a drain that was cut off goes on where its group is. What is
// in doubt is one transaction.
func TestDraining(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if err := b.pub.InitializeTopics(b.topic + ".dlq"); err != nil {
			t.Fatal(err)
		}
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
		var ids []string
		for i := range 230 {
			ids = append(ids, "id-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
		}
		b.publish(ids...)
		browse := func(most int) (seen []string) {
			sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "take" })
			err := sub.Browse(t.Context(), b.topic, func(msg *message.Message) bool {
				seen = append(seen, msg.UUID)
				return len(seen) < most
			})
			if err != nil {
				t.Fatal(err)
			}
			return seen
		}
		if seen := browse(1000); !slices.Equal(seen, ids) {
			t.Error(len(seen), seen)
		}
		b.take(b.topic, 7)
		if seen := browse(150); !slices.Equal(seen, ids[7:157]) {
			t.Error(len(seen), seen)
		}
	})
}
