package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Bad input: a configuration that cannot work, or would confirm what is not safe, is an error that names the field.
func TestPublisherConfig(t *testing.T) {
	brokers := []string{"127.0.0.1:1"}
	for name, row := range map[string]struct {
		brokers []string
		config  PublisherConfig
		says    string
	}{
		"no brokers":   {nil, PublisherConfig{}, "no brokers"},
		"size":         {brokers, PublisherConfig{Sarama: sends(-1)}, "MaxMessageBytes"},
		"no acks":      {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.NoResponse }}, "RequiredAcks"},
		"idempotent":   {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.Idempotent = true }}, "Idempotent"},
		"leader's ack": {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal }}, "RequiredAcks"},
		"transactions": {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.Transaction.ID = "x" }}, "Transaction.ID"},
		"sarama":       {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Net.MaxOpenRequests = 0 }}, "Sarama"},
		"no broker":    {brokers, PublisherConfig{}, "127.0.0.1:1"},
		"in flight":    {brokers, PublisherConfig{InFlight: -1}, "InFlight"},
		"too many":     {brokers, PublisherConfig{InFlight: maxPublishing + 1}, "InFlight"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Says(t, testkit.Err(NewPublisher(row.brokers, row.config)), row.says)
		})
	}
}

// Decision 10: the backlog is what the group has not acked, from its first message on where it never came.
func TestBacklog(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 2)
	records := numbered(5)
	records[4].Partition = 1
	c.produce(records...)
	sub := c.subscriber(SubscriberConfig{})
	check := func(sub *Subscriber, want int) {
		t.Helper()
		testkit.Returns(t, want)(sub.Backlog(context.Background(), c.topic))
	}
	check(sub, 5)
	newest := func(config *sarama.Config) { config.Consumer.Offsets.Initial = sarama.OffsetNewest }
	check(c.subscriber(SubscriberConfig{Sarama: newest}), 0)
	messages := c.subscribe(sub)
	for range 3 {
		c.next(messages).Ack()
	}
	testkit.NoError(t, sub.Close())
	check(sub, 2)
	testkit.Says(t, testkit.Err(sub.Backlog(context.Background(), c.topic+"-missing")), c.topic+"-missing")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	testkit.Is(t, testkit.Err(sub.Backlog(ended, c.topic)), context.Canceled)
}

// Promise P1: messages that are sent together are all there when Publish returns nil, once and in their order, however
// many there are.
func TestPublishTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{InFlight: 64})
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

// Decision 4, promise P1: of messages that are sent together only that is refused which is too large itself, wherever
// it is refused, and the error says which, how many were published, and that it will not pass.
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
			testkit.Says(t, err,
				fmt.Sprintf("%q: message 8 of 12 failed, %d were published", c.topic, len(row.published)))
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
	testkit.Says(t, pub.Publish(c.topic, good, nil, good),
		"message 2 of 3 failed, 0 were published: the message is nil")
	testkit.Says(t, c.publisher(PublisherConfig{}).Publish(c.topic, nil), "the message is nil")
	plain := c.publisher(PublisherConfig{InFlight: 10, Marshaler: kafka.DefaultMarshaler{}})
	testkit.Says(t, plain.Publish(c.topic, good, unfit), "message 2 of 2 failed, 0")
	testkit.Says(t, pub.Publish(c.topic+"-missing", good, good), "message 1 of 2 failed, 0")
	testkit.Says(t, pub.Publish(c.topic+"-missing", good), "create the topic") // which is not made up
	testkit.NoError(t, pub.Close())
	testkit.Is(t, pub.Publish(c.topic, good, good), ErrClosed)
	testkit.Equal(t, "records", c.size(c.topic), 0)
}

// topics creates topics of the test's own.
func (c *cluster) topics(n int) (topics []string) {
	c.Helper()
	for i := range n {
		topics = append(topics, fmt.Sprint(c.topic, ".", i))
		c.create(topics[i], 1, nil)
	}
	return topics
}

// own is how many topics have a producer of their own.
// Decision 4: a producer that cannot be opened is the error of the message that needs it, and the next one tries again.
func TestProducerThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{Sarama: dialer.into, linger: time.Millisecond})
	publish := func() error { return pub.Publish(c.topic, message.NewMessage("", nil)) }
	dialer.set(false, true)
	for range 2 {
		err := publish()
		testkit.Says(t, err, c.topic)
		testkit.Says(t, err, c.brokers[0])
	}
	dialer.set(false, false)
	testkit.NoError(t, publish())
}

// After Close nothing is published, whether its producer is there, is being opened or never was, and none is left
// behind: goleak would see it.
func TestCloseOfProducers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topics := c.topics(8)
	for _, linger := range []time.Duration{time.Millisecond, time.Millisecond, 0} {
		pub := c.publisher(PublisherConfig{linger: linger})
		var all sync.WaitGroup
		var published atomic.Int32
		for i, topic := range topics {
			all.Go(func() {
				for range i { // so that some are opened when it closes
					_ = pub.Publish(topics[0], message.NewMessage("", nil))
				}
				for {
					if err := pub.Publish(topic, message.NewMessage("", nil)); err != nil {
						testkit.Is(t, err, ErrClosed)
						return
					}
					published.Add(1)
				}
			})
		}
		c.eventually("it publishes", func() bool { return published.Load() > 20 })
		for range 2 {
			all.Go(func() { testkit.Is(t, pub.Close(), nil) })
		}
		all.Wait()
		testkit.Is(t, pub.InitializeTopics("x"), ErrClosed)
	}
}
