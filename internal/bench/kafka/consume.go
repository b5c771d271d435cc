package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/bench/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

var errPermanent = classify.Permanent(errors.New("no such order"))

// consumeBare is how long a router without any middleware, on watermill-kafka's own subscriber, takes for n messages.
func consumeBare(c *harness.Cluster, topic string, n int) (time.Duration, error) {
	config := kafka.SubscriberConfig{Brokers: c.Brokers, ConsumerGroup: watermill.NewUUID(), OverwriteSaramaConfig: kafka.DefaultSaramaSubscriberConfig()}
	config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(config, nil)
	if err != nil {
		return 0, err
	}
	return harness.Consume(c.Ctx, topic, n, sub, func(*message.Router) {}, func(*message.Message) error { return nil })
}

// consume is how long a protected router takes for n messages that all end with outcome.
func consume(c *harness.Cluster, topic string, n int, outcome error) (time.Duration, error) {
	sub, err := wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return 0, err
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{Publisher: c.Pub, Queue: poison.QueueConfig{Origin: wmkafka.Origin}})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	return harness.Consume(c.Ctx, topic, n, sub, dlc.Attach, func(*message.Message) error { return outcome })
}
