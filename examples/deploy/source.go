package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// source is where the messages are.
type source struct {
	publisher message.Publisher
	subscribe func() (message.Subscriber, error) // for a new instance
	every     time.Duration                      // between two messages: a little less than the instances can do
	closing   []func() error
}

func (s *source) close() (err error) {
	for i := len(s.closing) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closing[i]())
	}
	return err
}

func openSource(ctx context.Context, plan *Plan) (*source, error) {
	open, ok := map[string]func(context.Context, *Plan, *source) error{
		"kafka": inKafka, "rabbitmq": inRabbitMQ, "postgres": inPostgres,
	}[plan.On]
	if !ok {
		return nil, fmt.Errorf("-on %q: give kafka, rabbitmq or postgres", plan.On)
	}
	s := &source{}
	if err := open(ctx, plan, s); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// partitions are handled at the same time.
const partitions = 6

func inKafka(_ context.Context, plan *Plan, s *source) error {
	addresses, err := services.Lookup("kafka")
	if err != nil {
		return err
	}
	brokers := strings.Split(addresses, ",")
	admin, err := sarama.NewClusterAdmin(brokers, nil)
	if err != nil {
		return fmt.Errorf("connect to Kafka at %s: %w", addresses, err)
	}
	s.closing = append(s.closing, admin.Close)
	if err := admin.CreateTopic(plan.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1},
		false); err != nil {
		return fmt.Errorf("create topic %s: %w", plan.topic, err)
	}
	s.closing = append(s.closing, func() error { return admin.DeleteTopic(plan.topic) })
	publisher, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	s.closing = append(s.closing, publisher.Close)
	s.publisher, s.every = publisher, plan.Takes/(partitions/2)
	s.subscribe = func() (message.Subscriber, error) {
		return wmkafka.NewSubscriber(brokers, plan.topic, wmkafka.SubscriberConfig{})
	}
	return nil
}

// inFlight is how many messages an instance has of a queue.
const inFlight = 2

func inRabbitMQ(_ context.Context, plan *Plan, s *source) error {
	uri, err := services.Lookup("rabbitmq")
	if err != nil {
		return err
	}
	publisher, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
	if err != nil {
		return err
	}
	s.closing = append(s.closing, publisher.Close, func() error { return deleteQueue(uri, plan.topic) })
	if err := publisher.InitializeTopics(plan.topic); err != nil { // a quorum queue
		return err
	}
	s.publisher, s.every = publisher, plan.Takes/(inFlight*instances-1)
	s.subscribe = func() (message.Subscriber, error) {
		return wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{InFlight: inFlight})
	}
	return nil
}

func deleteQueue(uri, name string) error {
	connection, err := amqp091.Dial(uri)
	if err != nil {
		return errors.New("connect to RabbitMQ to delete the queue")
	}
	channel, err := connection.Channel()
	if err == nil {
		_, err = channel.QueueDelete(name, false, false, false)
	}
	return errors.Join(err, connection.Close())
}

// inPostgres makes a topic that is a table. The instances take turns.
func inPostgres(ctx context.Context, plan *Plan, s *source) error {
	db, cleanUp, err := crash.OpenDatabase(&crash.Setting{}, crash.Postgres)
	if err != nil {
		return err
	}
	s.closing = append(s.closing, func() error { return cleanUp() })
	publisher, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{})
	if err != nil {
		return err
	}
	s.closing = append(s.closing, publisher.Close)
	if err := publisher.InitializeTopics(plan.topic); err != nil {
		return err
	}
	s.publisher, s.every = publisher, plan.Takes*5/4
	s.subscribe = func() (message.Subscriber, error) {
		return wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: plan.topic})
	}
	return nil
}
