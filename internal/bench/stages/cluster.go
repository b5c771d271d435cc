package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// cluster is the Kafka that is measured, and the topics that are made for it.
type cluster struct {
	ctx     context.Context
	brokers []string
	admin   sarama.ClusterAdmin
	pub     *wmkafka.Publisher
	topics  map[string]bool
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
	return &cluster{ctx: ctx, brokers: brokers, admin: admin, pub: pub, topics: make(map[string]bool)}, nil
}

func (c *cluster) close() error { return errors.Join(c.remove(), c.pub.Close(), c.admin.Close()) }

// remove deletes the topics that were made so far.
func (c *cluster) remove() error {
	var errs []error
	for topic := range c.topics {
		if err := c.admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete %q: %w", topic, err))
		}
	}
	clear(c.topics)
	return errors.Join(errs...)
}

// made notes that topics are to be deleted.
func (c *cluster) made(topics ...string) {
	for _, topic := range topics {
		c.topics[topic] = true
	}
}

// usual is the message that figures are given for, 5 metadata keys and 1 KiB, with a number in it.
func usual(number int) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), make([]byte, 1024))
	binary.BigEndian.PutUint32(msg.Payload, uint32(number))
	for _, key := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(key, "value")
	}
	return msg
}

func numberOf(payload message.Payload) int { return int(binary.BigEndian.Uint32(payload)) }

// fill makes a topic of one partition with n messages, which has dead-letter topics.
func (c *cluster) fill(topic string, n int) error {
	if err := c.create(topic); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(c.brokers, wmkafka.SaramaPublisherConfig())
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	for first := 0; first < n; first += 500 {
		var batch []*sarama.ProducerMessage
		for number := first; number < min(first+500, n); number++ {
			record, err := wmkafka.Marshaler{}.Marshal(topic, usual(number))
			if err != nil {
				return err
			}
			batch = append(batch, record)
		}
		if err := producer.SendMessages(batch); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) create(topic string) error {
	c.made(topic, topic+".dlq", topic+".invalid", topic+".plain")
	if err := c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	return c.pub.InitializeTopics(topic+".plain", topic+".dlq")
}

// size is how many records a topic has.
func (c *cluster) size(topic string) (int, error) {
	sub, err := wmkafka.NewSubscriber(c.brokers, "figures-"+watermill.NewShortUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return 0, err
	}
	n, err := sub.Backlog(c.ctx, topic)
	return n, errors.Join(err, sub.Close())
}

// confirmed is how long one confirmed publish takes of n, one after the other.
func (c *cluster) confirmed(topic string, n int) (time.Duration, error) {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = usual(i)
	}
	began := time.Now()
	for _, msg := range messages {
		if err := c.pub.Publish(topic, msg); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(n), nil
}

// route runs a router to which add adds handlers, until done or the limit, which counts from begins, if that is not nil.
func (c *cluster) route(add func(*message.Router) error, begins, done <-chan struct{}, limit time.Duration) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := add(router); err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- router.Run(c.ctx) }()
	if begins != nil { // a consumer group takes its time
		select {
		case <-begins:
		case err := <-ran:
			return fmt.Errorf("the router ended early: %w", err)
		case <-c.ctx.Done():
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case err := <-ran:
		return fmt.Errorf("the router ended early: %w", err)
	}
	return errors.Join(router.Close(), <-ran)
}
