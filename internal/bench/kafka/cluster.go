package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

var errPermanent = classify.Permanent(errors.New("no such order"))

// cluster is the Kafka that is measured, and the topics that are made for it.
type cluster struct {
	ctx     context.Context
	brokers []string
	admin   sarama.ClusterAdmin
	pub     *wmkafka.Publisher
	topics  []string
}

func newCluster(ctx context.Context, brokers []string) (*cluster, error) {
	admin, err := sarama.NewClusterAdmin(brokers, wmkafka.SaramaPublisherConfig())
	if err != nil {
		return nil, err
	}
	pub, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return nil, errors.Join(err, admin.Close())
	}
	return &cluster{ctx: ctx, brokers: brokers, admin: admin, pub: pub}, nil
}

func (c *cluster) close() error {
	var errs []error
	for _, topic := range c.topics {
		if err := c.admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete %q: %w", topic, err))
		}
	}
	return errors.Join(append(errs, c.pub.Close(), c.admin.Close())...)
}

// usual is the message that figures are given for: 5 metadata keys and 1 KiB.
func usual() *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), make([]byte, 1024))
	for _, key := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(key, "value")
	}
	return msg
}

// fill makes a topic of one partition with n messages.
func (c *cluster) fill(topic string, n int) error {
	c.topics = append(c.topics, topic, topic+".dlq", topic+".invalid", topic+".plain")
	if err := c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	if err := c.pub.InitializeTopics(topic + ".plain"); err != nil {
		return err
	}
	config := wmkafka.SaramaPublisherConfig()
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	for n > 0 {
		var batch []*sarama.ProducerMessage
		for range min(n, 500) {
			record, err := wmkafka.Marshaler{}.Marshal(topic, usual())
			if err != nil {
				return err
			}
			batch = append(batch, record)
		}
		if err := producer.SendMessages(batch); err != nil {
			return err
		}
		n -= len(batch)
	}
	return nil
}

// publishOneByOne is how long n confirmed publishes take, one after the other.
func (c *cluster) publishOneByOne(topic string, n int) (time.Duration, error) {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = usual()
	}
	began := time.Now()
	for _, msg := range messages {
		if err := c.pub.Publish(topic, msg); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// consumeBare is how long a router without any middleware, on watermill-kafka's own subscriber, takes for n messages.
func (c *cluster) consumeBare(topic string, n int) (time.Duration, error) {
	config := kafka.SubscriberConfig{Brokers: c.brokers, ConsumerGroup: watermill.NewUUID(), OverwriteSaramaConfig: kafka.DefaultSaramaSubscriberConfig()}
	config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(config, nil)
	if err != nil {
		return 0, err
	}
	return c.route(topic, n, sub, func(*message.Router) {}, nil)
}

// consume is how long a protected router takes for n messages that all end with outcome.
func (c *cluster) consume(topic string, n int, outcome error) (time.Duration, error) {
	sub, err := wmkafka.NewSubscriber(c.brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return 0, err
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{Publisher: c.pub, Queue: poison.QueueConfig{Origin: wmkafka.Origin}})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	return c.route(topic, n, sub, dlc.Attach, outcome)
}

// route measures from the first handler call to the delivery of the last message, the others acked by then.
func (c *cluster) route(topic string, n int, sub message.Subscriber, attach func(*message.Router), outcome error) (took time.Duration, err error) {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	attach(router)
	var began atomic.Pointer[time.Time]
	var handled atomic.Int64
	done := make(chan time.Duration, 1)
	end := sync.OnceFunc(func() { done <- time.Since(*began.Load()) })
	router.AddConsumerHandler("figures", topic, sub, func(*message.Message) error {
		switch handled.Add(1) {
		case 1:
			now := time.Now()
			began.Store(&now)
		case int64(n):
			end()
		}
		return outcome
	})
	ran := make(chan error, 1)
	go func() { ran <- router.Run(c.ctx) }()
	select {
	case took = <-done:
	case err := <-ran:
		return 0, fmt.Errorf("the router ended early: %w", err)
	case <-c.ctx.Done():
		return 0, c.ctx.Err()
	}
	return took, errors.Join(router.Close(), <-ran)
}
