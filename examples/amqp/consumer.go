package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// consume is the service: a router with its handler, and the few lines that protect it. It runs until ctx ends.
func consume(ctx context.Context, c *crash.Consumer) (err error) {
	// A handler that stops closes its publisher, so dead letters have one of their own.
	outputs, err := wmamqp.NewPublisher(c.Brokers, wmamqp.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.Close()) }()
	deadLetters, err := wmamqp.NewPublisher(c.Brokers, wmamqp.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deadLetters.Close()) }()
	deliveries, err := subscriber(c.Brokers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()
	collected, err := subscriber(c.Brokers)
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
		Queue:       poison.QueueConfig{Origin: wmamqp.Origin},
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

func subscriber(uri string) (*wmamqp.Subscriber, error) {
	var config wmamqp.SubscriberConfig
	// of a queue that is to be declared; one that is there is taken as it is
	config.AMQP.Queue.Arguments = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	return wmamqp.NewSubscriber(uri, config)
}
