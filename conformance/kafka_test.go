package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmkafka"
)

// picky is an unmarshaler that cannot read everything.
type picky struct{ wmkafka.Marshaler }

func (p picky) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if string(record.Value) == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.Marshaler.Unmarshal(record)
}

// The suite on Kafka.
func TestKafka(t *testing.T) {
	brokers := services.Kafka(t)
	admin, err := sarama.NewClusterAdmin(brokers, wmkafka.SaramaPublisherConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	}()
	subscriber := func(t testing.TB, group string) *wmkafka.Subscriber {
		sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{Brokers: brokers, ConsumerGroup: group, Unmarshaler: picky{}})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	conformance.Run(t, conformance.Target{
		Name: "kafka",
		Publisher: func(t testing.TB) message.Publisher {
			pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: brokers})
			if err != nil {
				t.Fatal(err)
			}
			return pub
		},
		Subscriber: func(t testing.TB, group string) message.Subscriber { return subscriber(t, group) },
		Origin:     wmkafka.Origin,
		Backlog: func(t testing.TB, group string) func(context.Context, string) (int, error) {
			sub := subscriber(t, group)
			t.Cleanup(func() { _ = sub.Close() })
			return sub.Backlog
		},
		CreateTopic: func(t testing.TB, topic string) { createTopic(t, admin, topic) },
		BadTopic:    "no topic of Kafka!",
		Origins: []string{
			poison.KeyOriginalPartition, poison.KeyOriginalOffset, poison.KeyOriginalTimestamp, poison.KeyOriginalGroup,
		},
		MaxMessage: 1 << 20,
		Hostile:    hostileRecords(brokers),
	})
}

func createTopic(t testing.TB, admin sarama.ClusterAdmin, topic string) {
	t.Helper()
	err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.DeleteTopic(topic) })
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		found, err := admin.DescribeTopics([]string{topic})
		if err == nil && len(found) == 1 && found[0].Err == sarama.ErrNoError && len(found[0].Partitions) == 1 && found[0].Partitions[0].Err == sarama.ErrNoError {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %q has no leader: %v", topic, err)
		}
	}
}

func hostileRecords(brokers []string) []conformance.Hostile {
	send := func(record sarama.ProducerMessage) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			producer, err := sarama.NewSyncProducer(brokers, wmkafka.SaramaPublisherConfig())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = producer.Close() }()
			record := record
			record.Topic = topic
			if _, _, err := producer.SendMessage(&record); err != nil {
				t.Fatal(err)
			}
		}
	}
	id := sarama.RecordHeader{Key: []byte(kafka.UUIDHeaderKey), Value: []byte("hostile")}
	return []conformance.Hostile{
		{
			Name: "a binary key",
			Publish: send(sarama.ProducerMessage{
				Key: sarama.ByteEncoder("\x00\xff\xfe"), Value: sarama.StringEncoder("v"), Headers: []sarama.RecordHeader{id},
			}),
			Check: func(t testing.TB, msg *message.Message) {
				if got := poison.Read(msg).Origin.Key; string(got) != "\x00\xff\xfe" {
					t.Errorf("the key came back as %q", got)
				}
			},
		},
		{
			Name: "a header twice",
			Publish: send(sarama.ProducerMessage{Value: sarama.StringEncoder("v"), Headers: []sarama.RecordHeader{
				id, {Key: []byte("k"), Value: []byte("one")}, {Key: []byte("k"), Value: []byte("two")},
			}}),
		},
		{Name: "a tombstone", Publish: send(sarama.ProducerMessage{Key: sarama.StringEncoder("k"), Headers: []sarama.RecordHeader{id}})},
		{Name: "a record the unmarshaler refuses", Publish: send(sarama.ProducerMessage{
			Value: sarama.StringEncoder(conformance.Unreadable), Headers: []sarama.RecordHeader{id},
		}), Check: func(t testing.TB, msg *message.Message) {
			if msg.UUID != "hostile" || string(msg.Payload) != conformance.Unreadable {
				t.Errorf("set aside: %q with payload %q", msg.UUID, msg.Payload)
			}
		}},
	}
}
