package wmkafka

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/draining"
)

// Feature V5: a dry run of a drain commits nothing, and a drain that was cut off goes on where its group is.
func TestDraining(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.create(c.topic+".dlq", 1, nil)
	c.deleteLater(c.topic+".dlq.parked", c.topic+".dlq.quarantine")
	draining.Test(t, draining.Broker{
		Topic: c.topic, Publisher: c.publisher(PublisherConfig{}),
		Subscriber: func() draining.Subscriber { return c.subscriber(SubscriberConfig{}) },
		InDoubt:    1,
	})
}

// Browse reads all partitions, begins behind what the group committed, and needs no topic that has messages.
func TestBrowse(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 3)
	sub := c.subscriber(SubscriberConfig{})
	browse := func(most int) (n int) {
		testkit.NoError(t, sub.Browse(t.Context(), c.topic, func(msg *message.Message) bool {
			n++
			testkit.Check(t, Origin(msg).Topic == c.topic && Origin(msg).ConsumerGroup == c.group, "another's message")
			return n < most
		}))
		return n
	}
	testkit.Equal(t, "before", browse(100), 0)
	records := numbered(6)
	for i, record := range records {
		record.Partition = int32(i % 3)
	}
	c.produce(records...)
	testkit.Equal(t, "all", browse(100), 6)
	testkit.Equal(t, "some", browse(2), 2)
	missing := sub.Browse(t.Context(), c.topic+".missing", func(*message.Message) bool { return true })
	testkit.Check(t, missing != nil, "a topic that is missing is no error")
}
