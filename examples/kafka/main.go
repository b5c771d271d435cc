// Command kafka runs real GitHub events through a consumer that Spillway protects, on Kafka and PostgreSQL (or SQLite,
// where there is none). The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/poison/wmkafka"
)

func main() {
	plan := crash.Plan{}
	flag.StringVar(&plan.Input, "input", "", "file of events, a line {\"event\": name, \"payload\": {...}} each (default: 60 that are built in)")
	flag.Uint64Var(&plan.Seed, "seed", 1, "seed of the faults")
	flag.IntVar(&plan.KillAt, "kill-at", 0, "kill the consumer when so many events are stored (default: a third of them)")
	partitions := flag.Int("partitions", 3, "partitions of the topic")
	consumer := flag.Bool("consume", false, "be the consumer; the example starts itself so")
	flag.Parse()
	if *consumer {
		if err := crash.Consume(os.Stdin, consume); err != nil {
			fmt.Fprintln(os.Stderr, "kafka: consumer:", err)
			os.Exit(1)
		}
		return
	}
	result, err := run(plan, int32(*partitions))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
		os.Exit(1)
	}
	fmt.Println(result.JSON())
	if !result.Good() {
		os.Exit(1)
	}
}

func run(plan crash.Plan, partitions int32) (result webhooks.Result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if plan.Brokers, err = services.Lookup("kafka"); err != nil {
		return result, err
	}
	plan.Topic = "webhooks-" + strings.ToLower(rand.Text()[:12])
	cleanUp, err := createTopics(brokers(plan.Brokers), plan.Topic, partitions)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	live, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: brokers(plan.Brokers)})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	reader, err := subscriber(plan.Brokers, plan.Topic+"-demo")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	summaries, err := reader.Subscribe(ctx, summariesOf(plan.Topic))
	if err != nil {
		return result, err
	}
	backlog, closeBacklog, err := backlogOf(plan.Brokers, plan.Topic)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, closeBacklog()) }()
	return crash.Tell(ctx, plan, crash.Broker{Live: live, Summaries: summaries, Backlog: backlog})
}

// backlogOf counts what the two groups of the consumer have not acked: the topic's first, as a letter is published
// before its delivery is acked.
func backlogOf(addresses, topic string) (func(context.Context) (int, error), func() error, error) {
	handled, err := subscriber(addresses, topic)
	if err != nil {
		return nil, nil, err
	}
	collected, err := subscriber(addresses, collectorOf(topic))
	if err != nil {
		return nil, nil, errors.Join(err, handled.Close())
	}
	backlog := func(ctx context.Context) (int, error) {
		sum, err := handled.Backlog(ctx, topic)
		for _, letters := range deadLetterTopicsOf(topic) {
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

// createTopics makes what a service has from whoever runs its Kafka: its topics. Those of dead letters the channel makes
// itself, but the demo must not ask for their backlog before. cleanUp removes all of them.
func createTopics(addresses []string, topic string, partitions int32) (cleanUp func() error, err error) {
	admin, err := sarama.NewClusterAdmin(addresses, wmkafka.SaramaPublisherConfig())
	if err != nil {
		return nil, err
	}
	all := append(deadLetterTopicsOf(topic), topic, summariesOf(topic))
	cleanUp = func() error {
		var failed error
		for _, name := range all {
			if err := admin.DeleteTopic(name); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				failed = errors.Join(failed, fmt.Errorf("delete topic %s: %w", name, err))
			}
		}
		for _, group := range []string{topic, collectorOf(topic), topic + "-demo"} {
			_ = admin.DeleteConsumerGroup(group) // Kafka forgets it in a week
		}
		return errors.Join(failed, admin.Close())
	}
	replicas := int16(-1) // the cluster's default
	for _, name := range []string{topic, summariesOf(topic)} {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas}, false); err != nil {
			return nil, errors.Join(fmt.Errorf("create topic %s: %w", name, err), cleanUp())
		}
	}
	letters, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: addresses})
	if err != nil {
		return nil, errors.Join(err, cleanUp())
	}
	if err := errors.Join(letters.InitializeTopicsFor(topic, deadLetterTopicsOf(topic)...), letters.Close()); err != nil {
		return nil, errors.Join(err, cleanUp())
	}
	return cleanUp, nil
}
