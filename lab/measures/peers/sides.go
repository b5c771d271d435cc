package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// patience is how long a run may take that has an end.
const patience = 3 * time.Minute

// run is one pass over a topic.
type run struct {
	topic             string
	messages, percent int
	limit             time.Duration
}

// stock is Watermill's own parts.
func stock(c *harness.Cluster, r *run) (perSecond float64, err error) {
	t := harness.NewTrial(r.messages, r.percent)
	err = c.Watermill(r.topic, wm.Retry{MaxRetries: 1, InitialInterval: waits}, t, r.limit)
	return t.Live(), err
}

// channel is Spillway, to the end: all good messages handled, and all failing ones dead-lettered after the stage.
func channel(c *harness.Cluster, r *run) (perSecond float64, err error) {
	pub, err := wmkafka.NewPublisher(c.Brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pub.Close()) }()
	waiting, subscriber, err := wmkafka.NewStages(c.Brokers, "bench-"+watermill.NewShortUUID(),
		wmkafka.SubscriberConfig{}, wmkafka.PublisherConfig{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	t := harness.NewTrial(r.messages, r.percent)
	ch, err := spillway.New(context.Background(), spillway.Config{
		Publisher: pub,
		Queue:     poison.QueueConfig{Origin: wmkafka.Origin, Hooks: poison.Hooks{OnDeadLetter: t.Letter}},
		Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(waits),
			Subscriber: func(topic, group string) (message.Subscriber, error) {
				c.Made(topic)
				return subscriber(topic, group)
			},
		},
	})
	if err != nil {
		return 0, err
	}
	sub, err := wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return 0, err
	}
	err = harness.Route(c.Ctx, func(router *message.Router) error {
		t.Ready = router.Running()
		ch.Attach(router)
		_, err := ch.Stages().AddConsumerHandler(router, "h"+watermill.NewShortUUID(), r.topic, sub, t.Handle)
		return err
	}, t.Begins, t.Done, patience)
	return t.Live(), errors.Join(err, t.Finished(2))
}
