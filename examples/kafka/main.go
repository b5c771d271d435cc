// Command kafka runs real GitHub events through a consumer that Spillway protects, on Kafka and PostgreSQL (or SQLite,
// where there is none). The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

func main() {
	partitions := flag.Int("partitions", 3, "partitions of the topic")
	crash.Main("kafka", consume, func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) {
		return run(ctx, plan, *partitions)
	})
}

const maxPartitions = 100 // more would only keep Kafka busy

func run(ctx context.Context, plan *crash.Plan, partitions int) (result webhooks.Result, err error) {
	if partitions < 1 || partitions > maxPartitions {
		return result, fmt.Errorf("-partitions %d: give 1 to %d", partitions, maxPartitions)
	}
	if err := plan.Ready(); err != nil {
		return result, err
	}
	if plan.Brokers, err = services.Lookup("kafka"); err != nil {
		return result, err
	}
	cleanUp, err := createTopics(&plan.Setting, int32(partitions))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	live, err := wmkafka.NewPublisher(brokers(plan.Brokers), wmkafka.PublisherConfig{})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	reader, err := subscriber(plan.Brokers, plan.Topic+"-demo")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	summaries, err := reader.Subscribe(ctx, plan.Summaries())
	if err != nil {
		return result, err
	}
	backlog, closeBacklog, err := backlogOf(&plan.Setting)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, closeBacklog()) }()
	return crash.Tell(ctx, plan, crash.Broker{Live: live, Summaries: summaries, Backlog: backlog})
}

// backlogOf counts what the two groups of the consumer have not acked: the topic's first, as a letter is published
// before its delivery is acked.
func backlogOf(s *crash.Setting) (func(context.Context) (int, error), func() error, error) {
	handled, err := subscriber(s.Brokers, s.Topic)
	if err != nil {
		return nil, nil, err
	}
	collected, err := subscriber(s.Brokers, collectorOf(s.Topic))
	if err != nil {
		return nil, nil, errors.Join(err, handled.Close())
	}
	backlog := func(ctx context.Context) (int, error) {
		sum, err := handled.Backlog(ctx, s.Topic)
		for _, letters := range s.DeadLetters() {
			if err != nil {
				return 0, err
			}
			var n int
			n, err = collected.Backlog(ctx, letters)
			sum += n
		}
		return sum, err
	}
	return backlog, func() error { return errors.Join(handled.Close(), collected.Close()) }, nil
}

// createTopics makes what a service has from the operators of its Kafka: its topics. Those of dead letters the channel
// makes itself, but the demo must not ask for their backlog before. cleanUp removes all of them.
func createTopics(s *crash.Setting, partitions int32) (cleanUp func() error, err error) {
	addresses := brokers(s.Brokers)
	admin, err := sarama.NewClusterAdmin(addresses, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: start it with \"make services\", or correct SPILLWAY_KAFKA: %w",
			s.Brokers, err)
	}
	cleanUp = func() error {
		var failed error
		for _, name := range s.Topics() {
			if err := admin.DeleteTopic(name); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				failed = errors.Join(failed, fmt.Errorf("delete topic %s: %w", name, err))
			}
		}
		for _, group := range []string{s.Topic, collectorOf(s.Topic), s.Topic + "-demo"} {
			_ = admin.DeleteConsumerGroup(group) // Kafka forgets it in a week
		}
		return errors.Join(failed, admin.Close())
	}
	replicas := int16(-1) // the cluster's default
	for _, name := range []string{s.Topic, s.Summaries()} {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas},
			false); err != nil {
			return nil, errors.Join(fmt.Errorf("create topic %s: %w", name, err), cleanUp())
		}
	}
	letters, err := wmkafka.NewPublisher(addresses, wmkafka.PublisherConfig{})
	if err != nil {
		return nil, errors.Join(err, cleanUp())
	}
	if err := errors.Join(letters.InitializeTopicsFor(s.Topic, s.DeadLetters()...), letters.Close()); err != nil {
		return nil, errors.Join(err, cleanUp())
	}
	return cleanUp, nil
}
