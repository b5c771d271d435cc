package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

const storeEvents = "store-events"

// consume is the service: a router with its handler, and the few lines that protect it. It runs until ctx ends.
func consume(ctx context.Context, c *crash.Consumer) (err error) {
	addresses := brokers(c.Brokers)
	// A handler that stops closes its publisher, so dead letters have one of their own.
	outputs, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: addresses})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.Close()) }()
	deadLetters, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: addresses})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deadLetters.Close()) }()
	deliveries, err := subscriber(c.Brokers, c.Topic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()
	letters, err := subscriber(c.Brokers, collectorOf(c.Topic))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letters.Close()) }()
	store, err := redrive.NewStore(redrive.StoreConfig{DB: c.DB})
	if err != nil {
		return err
	}
	dlc, err := channel(c, deadLetters)
	if err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return err
	}
	dlc.Attach(router)
	router.AddPlugin(store.Collect(letters, deadLetterTopicsOf(c.Topic)...))
	router.AddHandler(storeEvents, c.Topic, deliveries, summariesOf(c.Topic), outputs, c.Faults.Handle)
	return router.Run(ctx)
}

func channel(c *crash.Consumer, deadLetters message.Publisher) (*spillway.Channel, error) {
	return spillway.New(spillway.Config{
		Publisher:   deadLetters,
		Idempotency: c.Keys(),
		Queue:       poison.QueueConfig{Origin: wmkafka.Origin},
		Retry: middleware.RetryConfig{
			Backoff: middleware.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
			OnRetry: func(context.Context, middleware.Attempt, time.Duration) { c.Count(crash.Retry) },
		},
		Receiver: idempotency.ReceiverConfig{
			OnDuplicate: func(context.Context, idempotency.Key) { c.Count(crash.Absorbed) },
		},
	})
}

func subscriber(addresses, group string) (*wmkafka.Subscriber, error) {
	config := wmkafka.SaramaSubscriberConfig()
	// After how long Kafka takes a killed consumer for dead; its brokers allow no less.
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	return wmkafka.NewSubscriber(wmkafka.SubscriberConfig{Brokers: brokers(addresses), ConsumerGroup: group, Sarama: config})
}

func brokers(addresses string) []string {
	list := strings.Split(addresses, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func summariesOf(topic string) string { return topic + ".summaries" }

func collectorOf(topic string) string { return topic + "-letters" }

func deadLetterTopicsOf(topic string) []string {
	return []string{
		poison.DefaultNaming(poison.Source{Topic: topic, Class: classify.ClassPermanent}),
		poison.DefaultNaming(poison.Source{Topic: topic, Class: classify.ClassInvalid}),
	}
}
