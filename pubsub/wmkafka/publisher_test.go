package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

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
func (p *Publisher) own() int {
	p.producers.lock.Lock()
	defer p.producers.lock.Unlock()
	return len(p.producers.byTopic)
}

// Decision 7: with a producer for each topic, opened by the first publisher, all that many publish at once is there,
// and topics beyond the bound share one.
func TestProducerPerTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true})
	pub.producers.most = 3
	topics := c.topics(5)
	var all sync.WaitGroup
	for _, topic := range topics {
		for range 4 {
			all.Go(func() {
				for i := range 20 {
					testkit.Is(t, pub.Publish(topic, message.NewMessage(fmt.Sprint(i), nil)), nil)
				}
			})
		}
	}
	all.Wait()
	for _, topic := range topics {
		testkit.Equal(t, topic, c.size(topic), 80)
	}
	testkit.Equal(t, "producers", pub.own(), 3)
	other := c.publisher(PublisherConfig{ProducerPerTopic: true}).producers
	first := other.begin(c.topic)
	testkit.Check(t, first == other.begin(c.topic), "a topic's producer was opened twice") // by two at once
	plain := c.publisher(PublisherConfig{})
	testkit.NoError(t, plain.Publish(topics[0], message.NewMessage("", nil)))
	testkit.Equal(t, "producers that were not asked for", plain.own(), 0)
}

// Decision 7: a message does not wait for the one that is on its way to another topic.
func TestProducersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer, freezers := &faulty{}, []*sync.RWMutex{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	topics := c.topics(2)
	for _, topic := range topics {
		freezers = append(freezers, dialer.freezer()) // of the topic's connections
		testkit.NoError(t, pub.Publish(topic, message.NewMessage("first", nil)))
	}
	freezers[0].Lock()
	release := sync.OnceFunc(freezers[0].Unlock)
	defer release()
	slow, quick := make(chan error, 1), make(chan error, 1)
	go func() { slow <- pub.Publish(topics[0], message.NewMessage("held up", nil)) }()
	go func() { quick <- pub.Publish(topics[1], message.NewMessage("not held up", nil)) }()
	testkit.NoError(t, testkit.Receive(t, "it does not wait for the other topic", quick))
	testkit.Require(t, len(slow) == 0, "it was not held up")
	release()
	testkit.NoError(t, <-slow)
}

// Decision 4: a producer that cannot be opened is the error of those who waited for it, and the next message tries
// again.
func TestProducerThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	publish := func() error { return pub.Publish(c.topic, message.NewMessage("", nil)) }
	for range 2 {
		dialer.set(false, true)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := publish()
				testkit.Says(t, err, c.topic)
				testkit.Says(t, err, c.brokers[0])
			})
		}
		all.Wait()
		testkit.Equal(t, "producers", pub.own(), 0)
	}
	dialer.set(false, false)
	for range 2 {
		testkit.NoError(t, publish())
		testkit.Equal(t, "producers", pub.own(), 1)
	}
}

// After Close nothing is published, whether its producer is there, is being opened or never was, and none is left
// behind: goleak would see it.
func TestCloseOfProducers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topics := c.topics(8)
	for _, perTopic := range []bool{true, true, true, false} {
		pub := c.publisher(PublisherConfig{ProducerPerTopic: perTopic})
		var all sync.WaitGroup
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
				}
			})
		}
		c.eventually("it publishes", func() bool { return pub.own() > 2 || !perTopic && pub.producers.used.Load() > 20 })
		for range 2 {
			all.Go(func() { testkit.Is(t, pub.Close(), nil) })
		}
		all.Wait()
		testkit.Is(t, pub.InitializeTopics("x"), ErrClosed)
	}
}
