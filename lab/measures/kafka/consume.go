package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// patience is how long a run may take.
const patience = 3 * time.Minute

var errPermanent = classify.Permanent(errors.New("no such order"))

// consumeBare is how long a router without any middleware, on watermill-kafka's own subscriber, takes for n messages.
func consumeBare(c *harness.Cluster, topic string, n int) (time.Duration, error) {
	config := kafka.SubscriberConfig{Brokers: c.Brokers, ConsumerGroup: watermill.NewUUID(),
		OverwriteSaramaConfig: kafka.DefaultSaramaSubscriberConfig()}
	config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(config, nil)
	if err != nil {
		return 0, err
	}
	return harness.Consume(c.Ctx, topic, n, sub, func(*message.Router) {}, func(*message.Message) error { return nil })
}

// consume is how long a protected router takes for n messages that all succeed.
func consume(c *harness.Cluster, topic string, n int) (time.Duration, error) {
	sub, dlc, err := protected(c, poison.Hooks{})
	if err != nil {
		return 0, err
	}
	return harness.Consume(c.Ctx, topic, n, sub, dlc.Attach, func(*message.Message) error { return nil })
}

// letters is how long a protected router takes for n messages, a share of which are dead-lettered at once.
func letters(c *harness.Cluster, topic string, n, percent int) (time.Duration, error) {
	t := harness.NewTrial(n, percent)
	sub, dlc, err := protected(c, poison.Hooks{OnDeadLetter: t.Letter})
	if err != nil {
		return 0, err
	}
	err = harness.Route(c.Ctx, func(router *message.Router) error {
		t.Ready = router.Running()
		dlc.Attach(router)
		router.AddConsumerHandler("bench", topic, sub, func(msg *message.Message) error {
			if harness.NumberOf(msg.Payload) >= n {
				return nil // the topic has more than this trial
			}
			if t.Handle(msg) != nil {
				return errPermanent
			}
			return nil
		})
		return nil
	}, t.Begins, t.Done, patience)
	return t.Took(), errors.Join(err, t.Finished(1))
}

// protected is a subscriber and a channel whose publisher waits for the confirm.
func protected(c *harness.Cluster, hooks poison.Hooks) (*wmkafka.Subscriber, *spillway.Channel, error) {
	sub, err := wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return nil, nil, err
	}
	dlc, err := spillway.New(context.Background(),
		spillway.Config{Publisher: c.Pub, Queue: poison.QueueConfig{Origin: wmkafka.Origin, Hooks: hooks}})
	if err != nil {
		return nil, nil, errors.Join(err, sub.Close())
	}
	return sub, dlc, nil
}
