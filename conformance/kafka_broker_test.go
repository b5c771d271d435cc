package conformance_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// kafkaBroker is Kafka as the suite's target sees it: its addresses.
type kafkaBroker []string

func (b kafkaBroker) publisher(t testing.TB, config func(*sarama.Config)) *wmkafka.Publisher {
	t.Helper()
	// Rows make dead-letter topics of their own, with Kafka's defaults, or that refuse all: see readOnly.
	return testkit.Must(wmkafka.NewPublisher(b, wmkafka.PublisherConfig{Sarama: config, AllowLossyTopics: true}))
}

func (b kafkaBroker) subscriber(t testing.TB, group string, config func(*sarama.Config)) *wmkafka.Subscriber {
	t.Helper()
	subscriber := wmkafka.SubscriberConfig{Unmarshaler: picky{}, Sarama: config}
	if strings.Contains(group, ".retry") { // a stage's
		subscriber.InFlight = 16
	}
	return testkit.Must(wmkafka.NewSubscriber(b, group, subscriber))
}

// keyed is for rows R13 and R15.
func (b kafkaBroker) keyed(t testing.TB, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	pub := testkit.Must(
		wmkafka.NewPublisher(b, wmkafka.PublisherConfig{Marshaler: wmkafka.Marshaler{Inner: byTenant{}}}))
	sub := testkit.Must(wmkafka.NewSubscriber(b, group, wmkafka.SubscriberConfig{Sarama: patient, InFlight: 16}))
	return pub, sub
}

// byTenant gives records a key.
type byTenant struct{ kafka.DefaultMarshaler }

func (m byTenant) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	record, err := m.DefaultMarshaler.Marshal(topic, msg)
	if err == nil {
		record.Key = sarama.StringEncoder(msg.Metadata.Get("tenant"))
	}
	return record, err
}

// admin does something with a connection of its own, because the broker may have been restarted.
func (b kafkaBroker) admin(t testing.TB, do func(sarama.ClusterAdmin) error) {
	t.Helper()
	config := sarama.NewConfig()
	config.Net.ReadTimeout, config.Admin.Timeout = testkit.Patience, testkit.Patience // a busy machine makes topics slowly
	admin := testkit.Must(sarama.NewClusterAdmin(b, config))
	testkit.NoError(t, errors.Join(do(admin), admin.Close()))
}

func (b kafkaBroker) createTopic(t testing.TB, topic string, detail sarama.TopicDetail) {
	t.Helper()
	detail.ReplicationFactor = 1
	b.admin(t, func(admin sarama.ClusterAdmin) error {
		err := admin.CreateTopic(topic, &detail, false)
		if errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return nil
		}
		return err
	})
	t.Cleanup(func() { b.deleteTopic(t, topic) })
	b.untilTopic(t, topic, func(found *sarama.TopicMetadata) bool {
		return found.Err == sarama.ErrNoError && len(found.Partitions) > 0 && found.Partitions[0].Err == sarama.ErrNoError
	})
}

func (b kafkaBroker) deleteTopic(t testing.TB, topic string) {
	t.Helper()
	b.admin(t, func(admin sarama.ClusterAdmin) error {
		err := admin.DeleteTopic(topic)
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return nil
		}
		return err
	})
	b.untilTopic(t, topic, func(found *sarama.TopicMetadata) bool { return found.Err == sarama.ErrUnknownTopicOrPartition })
}

func (b kafkaBroker) untilTopic(t testing.TB, topic string, is func(*sarama.TopicMetadata) bool) {
	t.Helper()
	b.admin(t, func(admin sarama.ClusterAdmin) error {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			found, err := admin.DescribeTopics([]string{topic})
			if err == nil && len(found) == 1 && is(found[0]) {
				return nil
			}
			if time.Now().After(deadline) {
				t.Errorf("topic %q is not as it should be: %v %v", topic, found, err)
				return err
			}
		}
	})
}

// readOnly makes a compacted topic, which refuses what has no key. Kafka counts no more replicas than a topic may have.
func (b kafkaBroker) readOnly(t testing.TB, topic string) (writable func()) {
	t.Helper()
	const setting = "cleanup.policy"
	refusing, accepting := "compact", "delete"
	b.createTopic(t, topic, sarama.TopicDetail{NumPartitions: 1, ConfigEntries: map[string]*string{setting: &refusing}})
	return func() {
		b.admin(t, func(admin sarama.ClusterAdmin) error {
			return admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{setting: &accepting}, false)
		})
	}
}
