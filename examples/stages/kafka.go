package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

func (c *consumer) publisher() (*wmkafka.Publisher, error) {
	return wmkafka.NewPublisher(split(c.plan.Brokers), wmkafka.PublisherConfig{})
}

// subscriber notes what is read, so that the run knows what to wait for, and in the end what to remove.
func (c *consumer) subscriber(topic, group string, inFlight int) (*wmkafka.Subscriber, error) {
	sub, err := newSubscriber(c.plan, group, inFlight)
	if err == nil {
		c.reads = append(c.reads, reading{sub, topic, group})
	}
	return sub, err
}

// stages publishes to the stage topics and consumes them, all in one consumer group.
func (c *consumer) stages() (*wmkafka.Publisher, func(topic, group string) (message.Subscriber, error), error) {
	return wmkafka.NewStages(split(c.plan.Brokers), stagesGroup(c.plan),
		wmkafka.SubscriberConfig{InFlight: stageInFlight}, wmkafka.PublisherConfig{})
}

func stagesGroup(plan *Plan) string { return plan.Topic + "-stages" }

func newSubscriber(plan *Plan, group string, inFlight int) (*wmkafka.Subscriber, error) {
	return wmkafka.NewSubscriber(split(plan.Brokers), group, wmkafka.SubscriberConfig{InFlight: inFlight})
}

// backlog is how many messages the consumer has not acked, in the topic and in all of its stages. It looks at the topic
// first: what leaves one in between is then seen where it arrives.
func (c *consumer) backlog(ctx context.Context) (sum int, err error) {
	for _, r := range c.reads {
		n, err := r.sub.Backlog(ctx, r.topic)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// createTopics makes what a service has from the operators of its Kafka: its topics, of one partition. Those of its
// stages the channel makes itself. cleanUp removes all of them, and the groups.
func createTopics(c *consumer) (cleanUp func() error, err error) {
	admin, err := sarama.NewClusterAdmin(split(c.plan.Brokers), nil)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: start it with \"make services\", or correct -brokers or "+
			"SPILLWAY_KAFKA: %w", c.plan.Brokers, err)
	}
	own := []string{c.plan.Topic, c.plan.Summaries()}
	cleanUp = func() error {
		var failed error
		topics, groups := slices.Clone(own), []string{demoGroup(c.plan)}
		for _, r := range c.reads {
			groups = append(groups, r.group)
			if !slices.Contains(topics, r.topic) {
				topics = append(topics, r.topic)
			}
		}
		for _, topic := range topics {
			if err := admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				failed = errors.Join(failed, fmt.Errorf("delete topic %s: %w", topic, err))
			}
		}
		for _, group := range groups {
			_ = admin.DeleteConsumerGroup(group) // Kafka forgets it in a week
		}
		return errors.Join(failed, admin.Close())
	}
	for _, topic := range own {
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: -1},
			false); err != nil {
			return nil, errors.Join(fmt.Errorf("create topic %s: %w", topic, err), cleanUp())
		}
	}
	return cleanUp, nil
}

// demoGroup is who reads the summaries.
func demoGroup(plan *Plan) string { return plan.Topic + "-demo" }
