// Command redis runs real GitHub events through a consumer that Spillway protects, on Redis Streams and PostgreSQL (or
// SQLite, where there is none). The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func main() {
	crash.Main("redis", consume, run)
}

func run(ctx context.Context, plan *crash.Plan) (result webhooks.Result, err error) {
	if err := plan.Ready(); err != nil {
		return result, err
	}
	if plan.Brokers, err = services.Lookup("redis"); err != nil {
		return result, err
	}
	// What a service asks at its start.
	if err := streams.CheckServer(ctx, redis.Options{Addr: plan.Brokers}); err != nil {
		return result, fmt.Errorf("start Redis with \"make services\", or correct SPILLWAY_REDIS: %w", err)
	}
	defer func() { err = errors.Join(err, removeStreams(&plan.Setting)) }()
	live, err := streams.NewPublisher(config(plan.Brokers, ""), nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	reader, err := streams.NewSubscriber(config(plan.Brokers, "demo"), nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	summaries, err := reader.Subscribe(ctx, plan.Summaries())
	if err != nil {
		return result, err
	}
	group, err := streams.NewSubscriber(config(plan.Brokers, service), nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	return crash.Tell(ctx, plan, crash.Broker{Live: live, Summaries: summaries,
		Backlog: backlogOf(&plan.Setting, group)})
}

// backlogOf counts what the consumer's group has not acked: the topic's first, as a letter is published before its
// delivery is acked.
func backlogOf(s *crash.Setting, group *streams.Subscriber) func(context.Context) (int, error) {
	return func(ctx context.Context) (sum int, err error) {
		for _, topic := range append([]string{s.Topic}, s.DeadLetters()...) {
			n, err := group.Backlog(ctx, topic)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
}

// removeStreams removes what the first messages and subscriptions made, with the groups.
func removeStreams(s *crash.Setting) error {
	client := redis.NewClient(&redis.Options{Addr: s.Brokers})
	err := client.Del(context.Background(), s.Topics()...).Err()
	return errors.Join(err, client.Close())
}
