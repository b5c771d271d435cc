// Command nats runs real GitHub events through a consumer that Spillway protects, on NATS JetStream and PostgreSQL (or
// SQLite, where there is none). The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"errors"
	"fmt"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func main() {
	crash.Main("nats", consume, run)
}

func run(ctx context.Context, plan *crash.Plan) (result webhooks.Result, err error) {
	if err := plan.Ready(); err != nil {
		return result, err
	}
	if plan.Brokers, err = services.Lookup("nats"); err != nil {
		return result, err
	}
	cleanUp, err := createStreams(&plan.Setting)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	live, err := jetstream.NewPublisher(config(plan.Brokers, ""), nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	reader, err := jetstream.NewSubscriber(config(plan.Brokers, "demo"), nil)
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

// backlogOf counts what the consumer's group has not acked: the topic's first, as a letter is published before its
// delivery is acked.
func backlogOf(s *crash.Setting) (func(context.Context) (int, error), func() error, error) {
	reader, err := jetstream.NewSubscriber(config(s.Brokers, service), nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (sum int, err error) {
		for _, topic := range append([]string{s.Topic}, s.DeadLetters()...) {
			n, err := reader.Backlog(ctx, topic)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}, reader.Close, nil
}

// createStreams makes what a service has from those who run its NATS: its streams. Those of dead letters the channel
// makes itself, but the demo must not ask for their backlog before. cleanUp removes all of them.
func createStreams(s *crash.Setting) (cleanUp func() error, err error) {
	conn, err := nats.Connect(s.Brokers)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: start it with \"make services\", or correct SPILLWAY_NATS: %w", err)
	}
	js, err := conn.JetStream()
	if err != nil {
		conn.Close()
		return nil, err
	}
	cleanUp = func() (failed error) {
		defer conn.Close()
		for _, topic := range s.Topics() {
			if err := js.DeleteStream(jetstream.Name(topic)); err != nil && !errors.Is(err, nats.ErrStreamNotFound) {
				failed = errors.Join(failed, fmt.Errorf("delete the stream of topic %s: %w", topic, err))
			}
		}
		return failed
	}
	if err := jetstream.Create(js, append(s.DeadLetters(), s.Topic, s.Summaries())...); err != nil {
		return nil, errors.Join(err, cleanUp())
	}
	return cleanUp, nil
}

// marshaler keeps everything of a message. With watermill-nats' default, metadata are headers of NATS: see
// docs/nats.md.
var marshaler = wmnats.GobMarshaler{}
