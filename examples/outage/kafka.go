package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// inKafka makes a topic of one partition.
func inKafka(ctx context.Context, plan *Plan, s *source) error {
	addresses, err := services.Lookup("kafka")
	if err != nil {
		return err
	}
	brokers := strings.Split(addresses, ",")
	admin, err := sarama.NewClusterAdmin(brokers, nil)
	if err != nil {
		return fmt.Errorf("connect to Kafka at %s: start it with \"make services\", or correct SPILLWAY_KAFKA: %w",
			addresses,
			err)
	}
	s.atClose(admin.Close)
	if err := admin.CreateTopic(plan.topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: -1},
		false); err != nil {
		return fmt.Errorf("create topic %s: %w", plan.topic, err)
	}
	s.atClose(func() error {
		err := admin.DeleteTopic(plan.topic)
		_ = admin.DeleteConsumerGroup(plan.topic) // Kafka forgets it in a week
		return err
	})
	publisher, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	s.atClose(publisher.Close)
	subscriber, err := wmkafka.NewSubscriber(brokers, plan.topic, wmkafka.SubscriberConfig{InFlight: plan.InFlight})
	if err != nil {
		return err
	}
	s.atClose(subscriber.Close)
	s.publisher, s.subscriber, s.origin = publisher, subscriber, wmkafka.Origin
	s.backlog = func(ctx context.Context) (int, error) { return subscriber.Backlog(ctx, plan.topic) }
	return errors.Join(ctx.Err(), s.inFile())
}
