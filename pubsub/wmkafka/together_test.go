package wmkafka

import (
	"errors"
	"fmt"
	"strings"
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
		if msg := unmarshal(t, Marshaler{}, record); msg.UUID != fmt.Sprint(i%1000) {
			t.Fatalf("record %d is message %s", i, msg.UUID)
		}
	}
}

// Decision 4: of messages that are sent together only that is refused which is too large itself, wherever it is
// refused, and the error says which, how many were published, and that it will not pass. What comes behind is not
// begun.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*sarama.Config){"client": nil, "broker": sends(16 << 20)} {
		c := newCluster(t)
		pub := c.publisher(PublisherConfig{Sarama: config, InFlight: 5})
		var messages []*message.Message
		for i := range 12 {
			size := 10
			if i == 7 {
				size = 2 << 20
			}
			messages = append(messages, message.NewMessage(fmt.Sprint(i), make([]byte, size)))
		}
		err := pub.Publish(c.topic, messages...)
		if !errors.Is(err, classify.ErrTooLarge) || !strings.Contains(err.Error(), "message 8 of 12 failed, 9 were published") {
			t.Errorf("%s: %v", name, err)
		}
		there := map[string]int{}
		for _, record := range c.records(c.topic, 1) {
			there[unmarshal(t, Marshaler{}, record).UUID]++
		}
		for i := range 12 {
			want := 1
			if i == 7 || i >= 10 {
				want = 0
			}
			if n := there[fmt.Sprint(i)]; n != want {
				t.Errorf("%s: message %d is there %d times", name, i, n)
			}
		}
		if err := pub.Publish(c.topic, messages[:5]...); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

// Bad input and a publisher that is closed, for which nothing is sent.
func TestTogetherErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, n := range []int{-1, maxPublishing + 1} {
		if _, err := NewPublisher(c.brokers, PublisherConfig{InFlight: n}); err == nil || !strings.Contains(err.Error(), "InFlight") {
			t.Errorf("%d: %v", n, err)
		}
	}
	pub := c.publisher(PublisherConfig{InFlight: 10})
	good := message.NewMessage("good", nil)
	unfit := message.NewMessage("unfit", nil)
	unfit.Metadata.Set(kafka.UUIDHeaderKey, "x")
	if err := pub.Publish(c.topic, good, nil, good); !errors.Is(err, errNilMessage) || !strings.Contains(err.Error(), "message 2 of 3 failed, 0") {
		t.Error(err)
	}
	plain := c.publisher(PublisherConfig{InFlight: 10, Marshaler: kafka.DefaultMarshaler{}})
	testkit.Says(t, plain.Publish(c.topic, good, unfit), "message 2 of 2 failed, 0")
	testkit.Says(t, pub.Publish(c.topic+"-missing", good, good), "message 1 of 2 failed, 0")
	testkit.NoError(t, pub.Close())
	testkit.Is(t, pub.Publish(c.topic, good, good), ErrClosed)
	if n := c.size(c.topic); n != 0 {
		t.Errorf("%d records", n)
	}
}
