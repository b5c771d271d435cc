package wmkafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promise P1: messages that are sent together are all there when Publish returns nil, once and in their order, however
// many there are.
func TestPublishTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{InFlight: 64, ProducerPerTopic: true})
	var messages []*message.Message
	for i := range 1000 {
		messages = append(messages, message.NewMessage(fmt.Sprint(i), make([]byte, 1024)))
	}
	for range 2 {
		testkit.NoError(t, pub.Publish(c.topic, messages...))
	}
	testkit.NoError(t, errors.Join(pub.Publish(c.topic), pub.Publish(c.topic, messages[0])))
	records := c.records(c.topic, 1)
	testkit.Require(t, len(records) == 2001, "%d records", len(records))
	for i, record := range records {
		testkit.Equal(t, "message", unmarshal(t, Marshaler{}, record).UUID, fmt.Sprint(i%1000))
	}
}

// Decision 4, promise P1: of messages that are sent together only that is refused which is too large itself, wherever it
// is refused, and the error says which, how many were published, and that it will not pass. What comes behind is not
// begun.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		config    func(*sarama.Config)
		inFlight  int
		published string // of twelve, whose eighth is too large
	}{
		"one by one": {nil, 1, "0123456"},
		"client":     {nil, 5, "012345689"},
		"broker":     {sends(16 << 20), 5, "012345689"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			pub := c.publisher(PublisherConfig{Sarama: row.config, InFlight: row.inFlight})
			var messages []*message.Message
			for i := range 12 {
				messages = append(messages, message.NewMessage(fmt.Sprint(i), make([]byte, 10)))
			}
			messages[7].Payload = make([]byte, 2<<20)
			err := pub.Publish(c.topic, messages...)
			testkit.Is(t, err, classify.ErrTooLarge)
			testkit.Says(t, err, fmt.Sprintf("%q: message 8 of 12 failed, %d were published", c.topic, len(row.published)))
			var there string
			for _, record := range c.records(c.topic, 1) {
				there += unmarshal(t, Marshaler{}, record).UUID
			}
			testkit.Equal(t, "published", there, row.published)
			testkit.NoError(t, pub.Publish(c.topic, messages[:5]...))
		})
	}
	testkit.Check(t, !isTooLarge(nil) && !isTooLarge(sarama.ErrNotEnoughReplicas) && !isTooLarge(sarama.ConfigurationError("other")) &&
		isTooLarge(sarama.ErrMessageSetSizeTooLarge), "other refusals are taken for one of the size")
}

// Bad input, a topic that is missing, and a publisher that is closed, for which nothing is sent.
func TestTogetherErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{InFlight: 10})
	good := message.NewMessage("good", nil)
	unfit := message.NewMessage("unfit", nil)
	unfit.Metadata.Set(kafka.UUIDHeaderKey, "x")
	testkit.Says(t, pub.Publish(c.topic, good, nil, good), "message 2 of 3 failed, 0 were published: the message is nil")
	testkit.Says(t, c.publisher(PublisherConfig{}).Publish(c.topic, nil), "the message is nil")
	plain := c.publisher(PublisherConfig{InFlight: 10, Marshaler: kafka.DefaultMarshaler{}})
	testkit.Says(t, plain.Publish(c.topic, good, unfit), "message 2 of 2 failed, 0")
	testkit.Says(t, pub.Publish(c.topic+"-missing", good, good), "message 1 of 2 failed, 0")
	testkit.Says(t, pub.Publish(c.topic+"-missing", good), "create the topic") // which is not made up
	testkit.NoError(t, pub.Close())
	testkit.Is(t, pub.Publish(c.topic, good, good), ErrClosed)
	testkit.Equal(t, "records", c.size(c.topic), 0)
}
