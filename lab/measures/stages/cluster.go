package main

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// cluster is the Kafka that is measured.
type cluster struct{ *harness.Cluster }

// size is how many records a topic has.
func (c *cluster) size(topic string) (int, error) {
	sub, err := wmkafka.NewSubscriber(c.Brokers, "bench-"+watermill.NewShortUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return 0, err
	}
	n, err := sub.Backlog(c.Ctx, topic)
	return n, errors.Join(err, sub.Close())
}
