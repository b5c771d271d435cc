package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// service is the consumer group: the name of the durable consumers.
const service = "shop"

// config has what every publisher and subscriber needs. AckWait is short, so that the demo need not wait 30 s for what
// the killed consumer had in hand.
func config(url, group string) jetstream.Config {
	return jetstream.Config{URL: url, Group: group, Marshaler: marshaler, AckWait: 5 * time.Second}
}

// consume is the service: a router with its handler, and the few lines that protect it. It runs until ctx ends.
func consume(ctx context.Context, c *crash.Consumer) (err error) {
	// A handler that stops closes its publisher, so dead letters have one of their own.
	outputs, err := jetstream.NewPublisher(config(c.Brokers, ""), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.Close()) }()
	deadLetters, err := jetstream.NewPublisher(config(c.Brokers, ""), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deadLetters.Close()) }()
	deliveries, err := jetstream.NewSubscriber(config(c.Brokers, service), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()
	collected, err := jetstream.NewSubscriber(config(c.Brokers, service), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collected.Close()) }()
	store, err := letters.NewStore(ctx, c.DB, letters.Config{Service: service})
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
