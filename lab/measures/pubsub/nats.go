package main

import (
	"context"
	"errors"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func openNATS(context.Context) (*pubsub, error) {
	url, err := services.Lookup("nats")
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := conn.JetStream()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &pubsub{
		publisher: func() (message.Publisher, error) { return jetstream.NewPublisher(jetstream.Config{URL: url}, nil) },
		bare: func(group string) (message.Subscriber, error) {
			return wmnats.NewSubscriber(wmnats.SubscriberConfig{
				URL: url, QueueGroupPrefix: group, Unmarshaler: wmnats.GobMarshaler{},
				JetStream: wmnats.JetStreamConfig{DurablePrefix: group,
					SubscribeOptions: []nats.SubOpt{nats.ManualAck()}},
			}, nil)
		},
		subscriber: func(group string) (message.Subscriber, error) {
			return jetstream.NewSubscriber(jetstream.Config{URL: url, Group: group}, nil)
		},
		create: func(topics ...string) error { return jetstream.Create(js, topics...) },
		remove: func(topics ...string) (failed error) {
			for _, topic := range topics {
				if err := js.DeleteStream(jetstream.Name(topic)); err != nil &&
					!errors.Is(err, nats.ErrStreamNotFound) {
					failed = errors.Join(failed, err)
				}
			}
			return failed
		},
		close: func() error { conn.Close(); return nil },
	}, nil
}
