package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// staging is a topic whose handler has one stage.
type staging struct {
	cluster *cluster
	topic   string
	channel *spillway.Channel
	stages  *wmkafka.Publisher
	sub     message.Subscriber
}

// stage makes one with a stage of waits, in a topic or in a store.
func (c *cluster) stage(store *delay.Store, inFlight int) (*staging, error) {
	s := &staging{cluster: c, topic: "bench-stage-" + watermill.NewShortUUID()}
	err := c.Create(s.topic)
	if err != nil {
		return nil, err
	}
	if s.stages, err = wmkafka.NewPublisher(c.Brokers,
		wmkafka.PublisherConfig{InFlight: 200}); err != nil {
		return nil, err
	}
	subscriber := func(topic, group string) (message.Subscriber, error) {
		c.Made(topic)
		return wmkafka.NewSubscriber(c.Brokers, group, wmkafka.SubscriberConfig{InFlight: inFlight})
	}
	s.channel, err = spillway.New(context.Background(), spillway.Config{Publisher: c.Pub, Stages: &stages.Config{
		Publisher: s.stages, Subscriber: subscriber, Stages: stages.Delays(waits), Store: store, Jitter: jitter,
	}})
	if err == nil {
		s.sub, err = wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	}
	if err != nil {
		return nil, errors.Join(err, s.stages.Close())
	}
	return s, nil
}

// run runs the handler until done, and beginning when it is subscribed.
func (s *staging) run(handle message.NoPublishHandlerFunc, beginning func(), done <-chan struct{}) error {
	err := harness.Route(s.cluster.Ctx, func(router *message.Router) error {
		s.channel.Attach(router)
		_, err := s.channel.Stages().AddConsumerHandler(router, "bench", s.topic, s.sub, handle)
		go func() {
			<-router.Running()
			beginning()
		}()
		return err
	}, nil, done, patience)
	return errors.Join(err, s.stages.Close())
}
