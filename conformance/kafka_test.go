package conformance_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// picky is an unmarshaler that cannot read everything.
type picky struct{ wmkafka.Marshaler }

func (p picky) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if string(record.Value) == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.Marshaler.Unmarshal(record)
}

const elsewhere = "K18: messages and keys are in two places: lab/chaos kills the server of the keys, and F2 the broker"

// The suite on Kafka.
func TestKafka(t *testing.T) {
	t.Parallel()
	b := kafkaBroker(services.Kafka(t))
	conformance.Run(t, conformance.Target{
		Name:       "kafka",
		Publisher:  func(t testing.TB) message.Publisher { return b.publisher(t, nil) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return b.subscriber(t, group, patient) },
		Stages:     b.stages,
		Keyed:      b.keyed,
		Ordered:    b.keyed,
		Origin:     wmkafka.Origin,
		Backlog: func(t testing.TB, group string) func(context.Context, string) (int, error) {
			sub := b.subscriber(t, group, patient)
			t.Cleanup(func() { _ = sub.Close() })
			return sub.Backlog
		},
		CreateTopic: func(t testing.TB, topic string) { b.createTopic(t, topic, sarama.TopicDetail{NumPartitions: 1}) },
		BadTopic:    "no topic of Kafka!",
		Origins: []string{
			poison.KeyOriginalPartition, poison.KeyOriginalOffset, poison.KeyOriginalTimestamp, poison.KeyOriginalGroup,
		},
		MaxMessage: 1 << 20,
		Pins:       map[string]string{"D9": "K18: no SQL source", "R12b": elsewhere},
		Hostile:    hostileRecords(b),
		Resumed:    1000,

		CreateShared: func(t testing.TB, topic string) { b.createTopic(t, topic, sarama.TopicDetail{NumPartitions: 2}) },
		DeleteTopic:  b.deleteTopic,
		ReadOnly:     b.readOnly,
		Restart:      func(t testing.TB) { services.Restart(t, "kafka") },
		Address:      b[0],
		Through: func(t testing.TB, address string) message.Publisher {
			return b.publisher(t, func(config *sarama.Config) {
				config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = time.Second, 6*time.Second, time.Second // a busy broker makes a topic in seconds
				config.Producer.Timeout = time.Second
				through(config, address)
			})
		},
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return b.subscriber(t, group, func(config *sarama.Config) { patient(config); through(config, address) })
		},
	})
}

// patient lets a killed member go after 6 s, and one that holds up a rebalance hold it up, rather than be put out.
func patient(config *sarama.Config) {
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Rebalance.Timeout = 30 * time.Second
	config.Net.ReadTimeout = 35 * time.Second
}

// stages are those of a service with one consumer group for all.
func (b kafkaBroker) stages(t testing.TB, service string) (message.Publisher, func(topic, group string) (message.Subscriber, error)) {
	waiting, subscriber, err := wmkafka.NewStages(b, service, wmkafka.SubscriberConfig{Sarama: patient, Unmarshaler: picky{}},
		wmkafka.PublisherConfig{AllowLossyTopics: true})
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = waiting.Close() })
	return waiting, subscriber
}

// through has all connections go to one address, whatever addresses the brokers give.
func through(config *sarama.Config, address string) {
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, onlyTo(address)
}

type onlyTo string

func (address onlyTo) Dial(network, _ string) (net.Conn, error) {
	return net.DialTimeout(network, string(address), time.Second)
}

func hostileRecords(brokers []string) []conformance.Hostile {
	send := func(record sarama.ProducerMessage) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			producer := testkit.Must(sarama.NewSyncProducer(brokers, nil))
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
				testkit.Equal(t, "the key", string(poison.Read(msg).Origin.Key), "\x00\xff\xfe")
				got, _ := kafka.MessageKeyFromCtx(msg.Context())
				testkit.Equal(t, "the key of the record", string(got), "\x00\xff\xfe")
			},
		},
		{
			Name: "a header twice",
			Publish: send(sarama.ProducerMessage{Value: sarama.StringEncoder("v"), Headers: []sarama.RecordHeader{
				id, {Key: []byte("k"), Value: []byte("one")}, {Key: []byte("k"), Value: []byte("two")},
			}}),
			Check: func(t testing.TB, msg *message.Message) { // metadata shows the last one
				if record, err := (wmkafka.Marshaler{}).Marshal("elsewhere", msg); err != nil || headers(record, "k") != "one two" {
					t.Errorf("came back as %v: %v", msg.Metadata, err)
				}
			},
		},
		{
			Name:    "a tombstone",
			Publish: send(sarama.ProducerMessage{Key: sarama.StringEncoder("k"), Headers: []sarama.RecordHeader{id}}),
			Check: func(t testing.TB, msg *message.Message) {
				if msg.Payload != nil { // a value that is empty deletes nothing
					t.Errorf("came back with a payload of %d bytes", len(msg.Payload))
				}
			},
		},
		{Name: "a record the unmarshaler refuses", Publish: send(sarama.ProducerMessage{
			Value: sarama.StringEncoder(conformance.Unreadable), Headers: []sarama.RecordHeader{id},
		}), Check: func(t testing.TB, msg *message.Message) {
			testkit.Check(t, msg.UUID == "hostile" && string(msg.Payload) == conformance.Unreadable,
				"set aside: %q with payload %q", msg.UUID, msg.Payload)
		}},
	}
}

func headers(record *sarama.ProducerMessage, name string) string {
	var values []string
	for _, h := range record.Headers {
		if string(h.Key) == name {
			values = append(values, string(h.Value))
		}
	}
	return strings.Join(values, " ")
}

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
