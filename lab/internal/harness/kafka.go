package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// Cluster is the Kafka that is measured. The topics that were made for it go with Remove.
type Cluster struct {
	Ctx     context.Context
	Brokers []string
	Pub     *wmkafka.Publisher
	admin   sarama.ClusterAdmin

	mu     sync.Mutex
	topics map[string]bool
}

// Kafka connects to the Kafka of package services.
func Kafka(ctx context.Context) (*Cluster, error) {
	address, err := services.Lookup("kafka")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Ctx: ctx, Brokers: strings.Split(address, ","), topics: map[string]bool{}}
	if c.admin, err = sarama.NewClusterAdmin(c.Brokers, nil); err != nil {
		return nil, err
	}
	if c.Pub, err = wmkafka.NewPublisher(c.Brokers, wmkafka.PublisherConfig{}); err != nil {
		return nil, errors.Join(err, c.admin.Close())
	}
	return c, nil
}

// Close removes the topics and disconnects.
func (c *Cluster) Close() error { return errors.Join(c.Remove(), c.Pub.Close(), c.admin.Close()) }

// Remove deletes the topics that were made so far, over a connection of its own: the broker closes one that was idle.
func (c *Cluster) Remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	admin, err := sarama.NewClusterAdmin(c.Brokers, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, topic := range slices.Sorted(maps.Keys(c.topics)) {
		if err := admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete %q: %w", topic, err))
		}
	}
	clear(c.topics)
	return errors.Join(append(errs, admin.Close())...)
}

// Made notes topics that Remove deletes.
func (c *Cluster) Made(topics ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		c.topics[topic] = true
	}
}

// Create makes a topic of one partition, its dead-letter topics, and one for messages as they are: "<topic>.plain".
func (c *Cluster) Create(topic string) error {
	c.Made(topic, topic+".dlq", topic+".invalid", topic+".plain")
	if err := c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1},
		false); err != nil {
		return err
	}
	return c.Pub.InitializeTopics(topic+".plain", topic+".dlq")
}

// Fill makes a topic with n numbered messages.
func (c *Cluster) Fill(topic string, n int) error {
	return c.FillWith(topic, n, func(number int) (*sarama.ProducerMessage, error) {
		return wmkafka.Marshaler{}.Marshal(topic, Numbered(number))
	})
}

// FillWith makes a topic with n records.
func (c *Cluster) FillWith(topic string, n int, record func(number int) (*sarama.ProducerMessage, error)) error {
	if err := c.Create(topic); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(c.Brokers, nil)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	for first := 0; first < n; first += 500 {
		var batch []*sarama.ProducerMessage
		for number := first; number < min(first+500, n); number++ {
			made, err := record(number)
			if err != nil {
				return err
			}
			batch = append(batch, made)
		}
		if err := producer.SendMessages(batch); err != nil {
			return err
		}
	}
	return nil
}

// Confirmed returns how long one confirmed publish takes, of n that follow one another.
func (c *Cluster) Confirmed(topic string, n int) (time.Duration, error) {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = Numbered(i)
	}
	began := time.Now()
	for _, msg := range messages {
		if err := c.Pub.Publish(topic, msg); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(n), nil
}

// Numbered returns the message of the figures with a number in its payload.
func Numbered(number int) *message.Message {
	msg := Message()
	binary.BigEndian.PutUint32(msg.Payload, uint32(number))
	return msg
}

// NumberOf returns the number in a payload.
func NumberOf(payload message.Payload) int { return int(binary.BigEndian.Uint32(payload)) }
