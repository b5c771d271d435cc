package wmkafka

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

func TestMain(m *testing.M) {
	// Tests have topics and groups of their own and mostly wait for Kafka, so more run at once than there are
	// processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	// The one goroutine of sarama's metrics lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

const patience = testkit.Patience

// cluster is the real Kafka, and a topic, a group and a producer of a test's own.
type cluster struct {
	testing.TB
	brokers  []string
	topic    string
	group    string
	admin    admin
	producer sarama.SyncProducer
}

// sends lets a publisher send records up to a size.
func sends(most int) func(*sarama.Config) {
	return func(config *sarama.Config) { config.Producer.MaxMessageBytes = most }
}

var connected sync.Once

func newCluster(t testing.TB) *cluster { return newPartitioned(t, 1) }

func newPartitioned(t testing.TB, partitions int32) *cluster {
	t.Helper()
	c := &cluster{TB: t, brokers: services.Kafka(t), topic: "orders-" + rand.Text(), group: "billing-" + rand.Text()}
	// The first connection alone: sarama makes its metrics by reflection, and the race detector takes the first use of
	// reflect's cache by two connections at once for a race.
	connected.Do(func() { testkit.NoError(t, testkit.Must(connectAdmin(c.brokers, publisherDefaults())).Close()) })
	var err error
	c.admin, err = connectAdmin(c.brokers, publisherDefaults())
	testkit.NoError(t, err)
	c.cleanup(c.admin.Close)
	c.producer = c.newProducer(func(config *sarama.Config) {
		config.Producer.MaxMessageBytes = 32 << 20
		config.Producer.Partitioner = sarama.NewManualPartitioner
	})
	c.create(c.topic, partitions, nil)
	return c
}

func (c *cluster) cleanup(end func() error) { c.Cleanup(func() { testkit.NoError(c, end()) }) }

// newProducer is one more producer of raw records.
func (c *cluster) newProducer(change func(*sarama.Config)) sarama.SyncProducer {
	c.Helper()
	config := publisherDefaults()
	change(config)
	producer := testkit.Must(sarama.NewSyncProducer(c.brokers, config))
	c.cleanup(producer.Close)
	return producer
}

// create creates a topic that is deleted with the test, and waits for its leaders.
func (c *cluster) create(topic string, partitions int32, entries map[string]string) {
	c.Helper()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
	for key, value := range entries {
		detail.ConfigEntries[key] = &value
	}
	testkit.NoError(c, c.admin.CreateTopic(topic, detail, false))
	c.deleteLater(topic)
	c.eventually("the topic has leaders", func() bool { return leaders(c.admin, topic, partitions) == nil })
}

func (c *cluster) deleteLater(topics ...string) {
	c.Cleanup(func() {
		for _, topic := range topics {
			err := c.admin.DeleteTopic(topic)
			testkit.Check(c, err == nil || errors.Is(err, sarama.ErrUnknownTopicOrPartition), "%v", err)
		}
	})
}

// produce writes raw records and returns the offset of the last.
func (c *cluster) produce(records ...*sarama.ProducerMessage) (offset int64) {
	c.Helper()
	for _, record := range records {
		if record.Topic == "" {
			record.Topic = c.topic
		}
		var err error
		_, offset, err = c.producer.SendMessage(record)
		testkit.NoError(c, err)
	}
	return offset
}

func header(key, value string) sarama.RecordHeader {
	return sarama.RecordHeader{Key: []byte(key), Value: []byte(value)}
}

func identified(id string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Headers: []sarama.RecordHeader{header(kafka.UUIDHeaderKey, id)}}
}

// numbered are n records with ids id-0, id-1, ...
func numbered(n int) (records []*sarama.ProducerMessage) {
	for i := range n {
		records = append(records, identified(fmt.Sprint("id-", i)))
		records[i].Value = sarama.StringEncoder(fmt.Sprint("payload ", i))
	}
	return records
}

// records are all that stand in a topic, as Kafka has them.
func (c *cluster) records(topic string, partitions int32) (records []*sarama.ConsumerMessage) {
	c.Helper()
	consumer := testkit.Must(sarama.NewConsumerFromClient(c.admin.client))
	defer func() { _ = consumer.Close() }()
	for partition := range partitions {
		var end int64
		var err error
		testkit.Eventually(c, "the broker leads the partition, as far as it knows", func() bool {
			end, err = c.admin.client.GetOffset(topic, partition, sarama.OffsetNewest)
			return !errors.Is(err, sarama.ErrNotLeaderForPartition)
		})
		testkit.NoError(c, err)
		claim := testkit.Must(consumer.ConsumePartition(topic, partition, sarama.OffsetOldest))
		for range end {
			records = append(records, <-claim.Messages())
		}
		_ = claim.Close()
	}
	return records
}

// size is the number of offsets in a topic.
func (c *cluster) size(topic string) (n int) {
	c.Helper()
	return c.behind(topic, "unread-"+rand.Text())
}

// behind is how many messages of a topic a group has not acked.
func (c *cluster) behind(topic, group string) int {
	c.Helper()
	n := testkit.Must(c.subscriber(SubscriberConfig{}, group).Backlog(context.Background(), topic))
	return n
}

func (c *cluster) subscriber(config SubscriberConfig, group ...string) *Subscriber {
	c.Helper()
	sub := testkit.Must(NewSubscriber(c.brokers, append(group, c.group)[0], config))
	c.cleanup(sub.Close)
	return sub
}

func (c *cluster) publisher(config PublisherConfig) *Publisher {
	c.Helper()
	pub := testkit.Must(NewPublisher(c.brokers, config))
	c.cleanup(pub.Close)
	return pub
}

// stock is watermill-kafka's own subscriber, reading from the oldest message.
func (c *cluster) stock(config kafka.SubscriberConfig) *kafka.Subscriber {
	c.Helper()
	config.Brokers = c.brokers
	if config.ConsumerGroup == "" {
		config.ConsumerGroup = c.group
	}
	config.OverwriteSaramaConfig = kafka.DefaultSaramaSubscriberConfig()
	config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.OverwriteSaramaConfig.Consumer.Group.Heartbeat.Interval = time.Second
	sub := testkit.Must(kafka.NewSubscriber(config, nil))
	c.cleanup(sub.Close)
	return sub
}

func (c *cluster) subscribe(sub message.Subscriber) <-chan *message.Message {
	c.Helper()
	return testkit.Must(sub.Subscribe(context.Background(), c.topic))
}

// next returns the next message, which must come.
func (c *cluster) next(messages <-chan *message.Message) *message.Message {
	c.Helper()
	msg := testkit.Receive(c, "a message", messages)
	testkit.Require(c, msg != nil, "the subscription has ended")
	return msg
}

// closes closes what must close although nothing else happens.
func (c *cluster) closes(it interface{ Close() error }) {
	c.Helper()
	var err error
	testkit.Within(c, "Close", func() { err = it.Close() })
	testkit.NoError(c, err)
}

// over fails unless a subscription has ended.
func (c *cluster) over(messages <-chan *message.Message) {
	c.Helper()
	testkit.Check(c, testkit.Receive(c, "the end", messages) == nil, "a message came after the end")
}

// none fails when a message comes within d.
func (c *cluster) none(messages <-chan *message.Message, d time.Duration) {
	c.Helper()
	select {
	case msg, ok := <-messages:
		testkit.Require(c, !ok, "message %q came", msg.UUID)
	case <-time.After(d):
	}
}

func (c *cluster) eventually(what string, condition func() bool) {
	c.Helper()
	testkit.Eventually(c, what, condition)
}

// committed is the group's offset in the topic's first partition, -1 where there is none.
func (c *cluster) committed() int64 {
	c.Helper()
	response := testkit.Must(c.admin.ListConsumerGroupOffsets(c.group, map[string][]int32{c.topic: {0}}))
	return response.GetBlock(c.topic, 0).Offset
}

// members is how many members the group, or another, has when it is stable, and 0 otherwise.
func (c *cluster) members(group ...string) int { return len(c.generation(group...)) }

// run runs a handler in a router until the test ends, or the returned function is called.
func (c *cluster) run(sub message.Subscriber, attach func(*message.Router), handle message.NoPublishHandlerFunc) (stop func()) {
	c.Helper()
	return testkit.RunRouter(c, nil, func(router *message.Router) {
		attach(router)
		router.AddConsumerHandler("billing", c.topic, sub, handle)
	})
}

// sink is a publisher of letters that keeps them.
type sink struct{ testkit.Kept }

func (s *sink) letters(t testing.TB) (letters []poison.Letter) {
	t.Helper()
	for _, msg := range s.Taken() {
		letters = append(letters, testkit.Must(poison.Decode(msg)))
	}
	return letters
}
