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
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

const (
	service = "webhooks"
	group   = "store-events"
	topic   = "webhooks"
)

// serve is the service: a router with its handler, its dead letters in the database, and a worker of campaigns.
func serve(ctx context.Context, c *crash.Consumer) (err error) {
	config := spillway.Config{Service: service, DB: c.DB}
	sub, live, closing, err := connect(ctx, c, &config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	dlc, err := spillway.New(ctx, config)
	if err != nil {
		return err
	}
	all, err := campaigns.New(ctx, dlc.Letters(), campaigns.Config{Allow: []string{c.Topic}})
	if err != nil {
		return err
	}
	worker, err := campaigns.NewWorker(all, live,
		campaigns.WorkerConfig{Poll: 100 * time.Millisecond, Lease: 2 * time.Second})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return err
	}
	dlc.Attach(router)
	router.AddPlugin(worker.Plugin)
	router.AddConsumerHandler(group, c.Topic, sub, handler{c.Fixed, c.Bind}.handle)
	return router.Run(ctx)
}

// connect opens the broker: Kafka if there are addresses, else tables in the database.
func connect(ctx context.Context, c *crash.Consumer,
	config *spillway.Config) (sub message.Subscriber, live message.Publisher, closing func() error, err error) {
	if c.Brokers == "" {
		tables, err := wmsql.NewSubscriber(ctx, c.DB, wmsql.SubscriberConfig{ConsumerGroup: group})
		if err != nil {
			return nil, nil, nil, err
		}
		if config.Idempotency, err = wmsql.Join(ctx, tables, service); err != nil {
			return nil, nil, nil, err
		}
		config.Queue = poison.QueueConfig{Origin: wmsql.Origin}
		live, err := wmsql.NewPublisher(ctx, c.DB, wmsql.PublisherConfig{})
		return tables, live, tables.Close, err
	}
	addresses := strings.Split(c.Brokers, ",")
	config.Queue = poison.QueueConfig{Origin: wmkafka.Origin}
	kafka, err := wmkafka.NewSubscriber(addresses, c.Topic,
		wmkafka.SubscriberConfig{Sarama: func(config *sarama.Config) {
			config.Consumer.Group.Session.Timeout = 6 * time.Second // after which Kafka takes a killed consumer for dead
		}})
	if err != nil {
		return nil, nil, nil, err
	}
	pub, err := wmkafka.NewPublisher(addresses, wmkafka.PublisherConfig{})
	return kafka, pub, func() error { return errors.Join(kafka.Close(), pub.Close()) }, err
}
