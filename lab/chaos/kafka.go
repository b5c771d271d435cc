package main

import (
	"errors"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// onKafka is a site with topics of several partitions, and stages that are topics.
func onKafka(s *site) {
	addresses := []string{s.Address}
	s.origin = wmkafka.Origin
	s.publisher = func() (publisher, error) {
		config := wmkafka.PublisherConfig{Sarama: through(s.Address), Shared: observe.Shared{Logger: s.logger}}
		return wmkafka.NewPublisher(addresses, config)
	}
	s.source = func() (publisher, error) {
		config := wmkafka.PublisherConfig{
			Sarama: through(s.Address), Marshaler: wmkafka.Marshaler{Inner: beside{}},
			Shared: observe.Shared{Logger: s.logger},
		}
		return wmkafka.NewPublisher(addresses, config)
	}
	consumes := func(config *sarama.Config) {
		through(s.Address)(config)
		config.Consumer.Group.Session.Timeout = 6 * time.Second // of a killed consumer: the broker allows no less
	}
	s.subscriber = func(group string, inFlight int) (subscriber, error) {
		return wmkafka.NewSubscriber(addresses, group,
			wmkafka.SubscriberConfig{InFlight: inFlight, Sarama: consumes, Shared: observe.Shared{Logger: s.logger}})
	}
	s.ofStages = s.stagesGroup()
	s.stages = func() (message.Publisher, func(topic, group string) (message.Subscriber, error), error) {
		return wmkafka.NewStages(addresses, s.stagesGroup(),
			wmkafka.SubscriberConfig{InFlight: inFlight, Sarama: consumes, Shared: observe.Shared{Logger: s.logger}},
			wmkafka.PublisherConfig{Sarama: through(s.Address)})
	}
	s.oversized = func(msg *message.Message, less int) { msg.Payload = make([]byte, 1<<20-less) }
	s.refused = func(string) *message.Message { return message.NewMessage("", make([]byte, 2<<20)) }

	const partitions = 4
	s.create = func() error {
		return s.admin(func(admin sarama.ClusterAdmin) error {
			for _, topic := range []string{s.Topic, s.outputs()} {
				if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1},
					false); err != nil {
					return err
				}
			}
			pub, err := wmkafka.NewPublisher(addresses, wmkafka.PublisherConfig{})
			if err != nil {
				return err
			}
			return errors.Join(pub.InitializeTopicsFor(s.Topic, s.deadLetters()...), pub.Close())
		})
	}
	s.remove = func() error {
		return s.admin(func(admin sarama.ClusterAdmin) (failed error) {
			for _, topic := range s.topics() {
				if err := admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
					failed = errors.Join(failed, err)
				}
			}
			for _, topic := range s.topics() { // the group of the live topic has its name
				_ = admin.DeleteConsumerGroup(topic) // Kafka forgets it in a week
				_ = admin.DeleteConsumerGroup(s.reader(topic))
			}
			_ = admin.DeleteConsumerGroup(s.stagesGroup())
			return failed
		})
	}
}

// beside gives messages that belong beside one another one key, and so one partition.
type beside struct{ kafka.DefaultMarshaler }

func (b beside) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	record, err := b.DefaultMarshaler.Marshal(topic, msg)
	if key := msg.Metadata.Get(besideKey); key != "" && err == nil {
		record.Key = sarama.StringEncoder(key)
	}
	return record, err
}

func (s *site) admin(do func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{s.Address}, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

// through has all connections go to one address, whatever addresses the brokers give: that may be a proxy's.
func through(address string) func(*sarama.Config) {
	return func(config *sarama.Config) { config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, onlyTo(address) }
}

type onlyTo string

func (address onlyTo) Dial(network, _ string) (net.Conn, error) {
	return net.DialTimeout(network, string(address), 5*time.Second)
}
