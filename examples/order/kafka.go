package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// kafkaBroker is Kafka, with a topic of its own.
type kafkaBroker struct {
	*plan
	admin sarama.ClusterAdmin // only of the process that judges
}

func newKafka(p *plan) (broker, error) {
	if p.Brokers == nil {
		address, err := services.Lookup("kafka")
		if err != nil {
			return nil, err
		}
		p.Brokers = []string{address}
	}
	return &kafkaBroker{plan: p}, nil
}

func (k *kafkaBroker) connect() (err error) {
	if k.admin != nil {
		_ = k.admin.Close() // its connections may be those to a broker that was restarted
	}
	k.admin, err = sarama.NewClusterAdmin(k.Brokers, nil)
	return err
}

func (k *kafkaBroker) create() error {
	if err := k.connect(); err != nil {
		return err
	}
	for _, topic := range []string{k.Topic, k.outputs()} {
		detail := &sarama.TopicDetail{NumPartitions: int32(k.Partitions), ReplicationFactor: 1}
		if err := k.admin.CreateTopic(topic, detail, false); err != nil {
			return err
		}
	}
	return nil
}

func (k *kafkaBroker) remove() (failed error) {
	if err := k.connect(); err != nil {
		return err
	}
	topics, failed := k.admin.ListTopics()
	for topic := range topics {
		if strings.Contains(topic, k.Topic) { // stages, too
			failed = errors.Join(failed, k.admin.DeleteTopic(topic))
		}
	}
	return errors.Join(failed, k.admin.Close())
}

// produce leaves half of the messages to grow.
// grow adds partitions, so that keys move, and produces the rest.
func (k *kafkaBroker) grow() error {
	if err := k.connect(); err != nil {
		return err
	}
	k.Partitions = k.Partitions*3/2 + 1
	if err := k.admin.CreatePartitions(k.Topic, int32(k.Partitions), nil, false); err != nil {
		return err
	}
	return k.produce(k.Messages/2, k.Messages)
}

func (k *kafkaBroker) produce(from, to int) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes, config.Producer.Idempotent, config.Net.MaxOpenRequests = true, true, 1
	config.Producer.RequiredAcks, config.Producer.Retry.Max = sarama.WaitForAll, 600 // for a minute: new partitions have no leader yet
	producer, err := sarama.NewSyncProducer(k.Brokers, config)
	if err != nil {
		return err
	}
	var all []*sarama.ProducerMessage
	for n := from; n < to; n++ {
		all = append(all, &sarama.ProducerMessage{Topic: k.Topic, Key: sarama.StringEncoder(k.keyOf(n)),
			Value:   sarama.StringEncoder(fmt.Sprint(n)),
			Headers: []sarama.RecordHeader{{Key: []byte(kafka.UUIDHeaderKey), Value: []byte(k.idOf(n))}}})
	}
	for len(all) > 0 && err == nil {
		some := all[:min(500, len(all))]
		all, err = all[len(some):], producer.SendMessages(some)
	}
	return errors.Join(err, producer.Close())
}

func (k *kafkaBroker) consume(config *spillway.Config) (message.Subscriber, message.Publisher, error) {
	config.Queue.Origin = wmkafka.Origin
	subscriber, err := wmkafka.NewSubscriber(k.Brokers, k.Topic, wmkafka.SubscriberConfig{InFlight: k.Lanes,
		Sarama: func(config *sarama.Config) { config.Consumer.Group.Session.Timeout = 6 * time.Second }})
	if err != nil {
		return nil, nil, err
	}
	if k.Without {
		staged, stage, err := wmkafka.NewStages(k.Brokers, k.Topic+"-stages", wmkafka.SubscriberConfig{},
			wmkafka.PublisherConfig{})
		if err != nil {
			return nil, nil, err
		}
		config.Stages = &stages.Config{Publisher: staged, Stages: stages.Delays(k.Delays...), Subscriber: stage}
	}
	publisher, err := wmkafka.NewPublisher(k.Brokers,
		wmkafka.PublisherConfig{Marshaler: wmkafka.Marshaler{Inner: byLane{}}})
	return subscriber, publisher, err
}

func (*kafkaBroker) partition(msg *message.Message) int {
	partition, _ := kafka.MessagePartitionFromCtx(msg.Context())
	return int(partition)
}

// byLane gives outputs of one key one partition.
type byLane struct{ kafka.DefaultMarshaler }

func (b byLane) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	record, err := b.DefaultMarshaler.Marshal(topic, msg)
	if key := msg.Metadata.Get(laneKey); key != "" && err == nil {
		record.Key = sarama.StringEncoder(key)
	}
	return record, err
}

func (k *kafkaBroker) behind() (int, error) {
	offsets, err := k.admin.ListConsumerGroupOffsets(k.Topic, map[string][]int32{k.Topic: partitions(k.Partitions)})
	if err != nil {
		return 0, errors.Join(err, k.connect())
	}
	committed := 0
	for p := range k.Partitions {
		if block := offsets.GetBlock(k.Topic, int32(p)); block != nil && block.Offset > 0 {
			committed += int(block.Offset)
		}
	}
	return k.Messages - committed, nil
}

func partitions(n int) (all []int32) {
	for p := range n {
		all = append(all, int32(p))
	}
	return all
}

// published reads the topic of outputs, in which those of a lane are in one partition.
func (k *kafkaBroker) published(each func(output) error) (err error) {
	client, err := sarama.NewClient(k.Brokers, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	all, err := client.Partitions(k.outputs())
	if err != nil {
		return err
	}
	for _, p := range all {
		end, err := client.GetOffset(k.outputs(), p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		if end == 0 {
			continue
		}
		from, err := consumer.ConsumePartition(k.outputs(), p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for record := range from.Messages() {
			out := output{number: string(record.Value)}
			for _, h := range record.Headers {
				switch string(h.Key) {
				case kafka.UUIDHeaderKey:
					out.id = string(h.Value)
				case laneKey:
					out.lane = string(h.Value)
				}
			}
			if err := each(out); err != nil {
				return err
			}
			if record.Offset == end-1 {
				break
			}
		}
		if err := from.Close(); err != nil {
			return err
		}
	}
	return nil
}
