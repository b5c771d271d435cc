package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// consume is the service: a router with its handler, and the few lines that protect it. It runs until ctx ends.
func consume(ctx context.Context, c *crash.Consumer) (err error) {
	addresses := brokers(c.Brokers)
	// A handler that stops closes its publisher, so dead letters have one of their own.
	outputs, err := wmkafka.NewPublisher(addresses, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.Close()) }()
	deadLetters, err := wmkafka.NewPublisher(addresses, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deadLetters.Close()) }()
	deliveries, err := subscriber(c.Brokers, c.Topic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()
	collected, err := subscriber(c.Brokers, collectorOf(c.Topic))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collected.Close()) }()
	store, err := letters.NewStore(ctx, c.DB, letters.Config{Service: "shop"})
	if err != nil {
		return err
	}

	keys, err := c.Keys(ctx)
	if err != nil {
		return err
	}
	dlc, err := spillway.New(ctx, spillway.Config{
		Publisher:   deadLetters,
		Idempotency: keys,
		Queue:       poison.QueueConfig{Origin: wmkafka.Origin},
		Retry:       c.Retry(),
		Receiver:    c.Receiver(),
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return err
	}
	dlc.Attach(router)
	router.AddPlugin(store.Collect(collected, c.DeadLetters()...))
	router.AddHandler("store-events", c.Topic, deliveries, c.Summaries(), outputs, c.Faults.Handle)
	return router.Run(ctx)
}

func subscriber(addresses, group string) (*wmkafka.Subscriber, error) {
	return wmkafka.NewSubscriber(brokers(addresses), group,
		wmkafka.SubscriberConfig{Sarama: func(config *sarama.Config) {
			// After how long Kafka takes a killed consumer for dead; its brokers allow no less.
			config.Consumer.Group.Session.Timeout = 6 * time.Second
		}})
}

func brokers(addresses string) []string {
	list := strings.Split(addresses, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// A topic's dead letters are collected by a group of their own, so that neither waits for the other's rebalances.
func collectorOf(topic string) string { return topic + "-letters" }
