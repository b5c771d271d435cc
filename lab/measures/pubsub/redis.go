package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func openRedis(ctx context.Context) (*pubsub, error) {
	address, err := services.Lookup("redis")
	if err != nil {
		return nil, err
	}
	options := redis.Options{Addr: address}
	admin := redis.NewClient(&options)
	return &pubsub{
		publisher: func() (message.Publisher, error) {
			return streams.NewPublisher(streams.Config{Options: options},
				nil)
		},
		bare: func(group string) (message.Subscriber, error) {
			own := options
			return redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: redis.NewClient(&own),
				ConsumerGroup: group},
				nil)
		},
		subscriber: func(group string) (message.Subscriber, error) {
			return streams.NewSubscriber(streams.Config{Options: options, Group: group}, nil)
		},
		create: func(...string) error { return nil },
		remove: func(topics ...string) error { return admin.Del(ctx, topics...).Err() },
		close:  admin.Close,
	}, nil
}
