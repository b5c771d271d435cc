package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// consume is the service: a router with its handler, and the few lines that protect it. It runs until ctx ends. What
// the handler writes, the key, the summary, a dead letter and the acknowledgement are in one transaction.
func consume(ctx context.Context, c *crash.Consumer) (err error) {
	// A handler that stops closes its publisher, so dead letters have one of their own.
	outputs, err := wmsql.NewPublisher(ctx, c.DB, wmsql.PublisherConfig{})
	if err != nil {
		return err
	}
	deadLetters, err := wmsql.NewPublisher(ctx, c.DB, wmsql.PublisherConfig{})
	if err != nil {
		return err
	}
	deliveries, err := wmsql.NewSubscriber(ctx, c.DB, wmsql.SubscriberConfig{ConsumerGroup: consumerGroup})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()
	collected, err := wmsql.NewSubscriber(ctx, c.DB, wmsql.SubscriberConfig{ConsumerGroup: collectorGroup})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collected.Close()) }()
	store, err := letters.NewStore(ctx, c.DB, letters.Config{Service: "shop"})
	if err != nil {
		return err
	}
	keys, err := wmsql.Join(ctx, deliveries, "shop")
	if err != nil {
		return err
	}

	dlc, err := spillway.New(ctx, spillway.Config{
		Publisher:   deadLetters,
		Idempotency: keys,
		Queue:       poison.QueueConfig{Origin: wmsql.Origin},
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

const (
	consumerGroup  = "store-events"
	collectorGroup = "letters"
)
