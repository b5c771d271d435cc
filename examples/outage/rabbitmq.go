package main

import (
	"context"
	"errors"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// inRabbitMQ makes a quorum queue.
func inRabbitMQ(ctx context.Context, plan *Plan, s *source) error {
	uri, err := services.Lookup("rabbitmq")
	if err != nil {
		return err
	}
	if _, err := amqp091.ParseURI(uri); err != nil { // the error would show the password
		return errors.New("the address of RabbitMQ is no AMQP URL: let SPILLWAY_AMQP be amqp://user:password@host:port/")
	}
	publisher, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
	if err != nil {
		return err
	}
	s.atClose(publisher.Close)
	s.atClose(func() error { return deleteQueue(uri, plan.topic) })
	if err := publisher.InitializeTopics(plan.topic); err != nil { // a quorum queue
		return err
	}
	subscriber, err := wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{InFlight: plan.InFlight})
	if err != nil {
		return err
	}
	s.atClose(subscriber.Close)
	s.publisher, s.subscriber, s.origin = publisher, subscriber, wmamqp.Origin
	s.backlog = func(ctx context.Context) (int, error) { return subscriber.Backlog(ctx, plan.topic) }
	return errors.Join(ctx.Err(), s.inFile())
}

func deleteQueue(uri, name string) error {
	connection, err := amqp091.Dial(uri)
	if err != nil {
		return err
	}
	channel, err := connection.Channel()
	if err == nil {
		_, err = channel.QueueDelete(name, false, false, false)
	}
	return errors.Join(err, connection.Close())
}
