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
	browse := func(most int) (ids []string) {
		err := sub.Browse(t.Context(), c.topic, func(msg *message.Message) bool {
			ids = append(ids, msg.UUID)
			if origin := Origin(msg); origin.Topic != c.topic || origin.ConsumerGroup != c.group {
				t.Errorf("%+v", origin)
			}
			return len(ids) < most
		})
		testkit.NoError(t, err)
		return ids
	}
	if ids := browse(100); len(ids) != 0 {
		t.Error(ids)
	}
	records := numbered(6)
	for i, record := range records {
		record.Partition = int32(i % 3)
	}
	c.produce(records...)
	if ids := browse(100); len(ids) != 6 {
		t.Error(ids)
	}
	if ids := browse(2); len(ids) != 2 {
		t.Error(ids)
	}
	if err := sub.Browse(t.Context(), c.topic+".missing", func(*message.Message) bool { return true }); err == nil {
		t.Error("a topic that is missing is no error")
	}
}
