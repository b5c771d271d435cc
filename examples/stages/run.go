package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/chart"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// run tells the story of a plan, and leaves nothing of it behind.
func run(ctx context.Context, plan *Plan) (result Result, err error) {
	if err := plan.Ready(); err != nil {
		return result, err
	}
	if plan.Brokers == "" {
		if plan.Brokers, err = services.Lookup("kafka"); err != nil {
			return result, err
		}
	}
	if plan.Postgres != "" { // it is where the examples look
		if err := os.Setenv("SPILLWAY_POSTGRES", plan.Postgres); err != nil {
			return result, fmt.Errorf("-database: %w", err)
		}
	}
	db, cleanUp, err := crash.OpenDatabase(&plan.Setting, "")
	if err != nil && plan.Postgres != "" {
		err = fmt.Errorf("-database, in place of SPILLWAY_POSTGRES: %w", err)
	}
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	store, err := letters.NewStore(context.Background(), db, letters.Config{Service: "shop"})
	if err != nil {
		return result, err
	}
	down, err := startDownstream()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, down.close()) }()

	faults := &webhooks.Faults{Bind: plan.Bind}
	faults.Fixed.Store(true) // the handler is sound: here the downstream alone is not
	c := newConsumer(plan, db, store, down.before(faults.Handle, plan.needs))
	remove, err := createTopics(c)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	live, err := c.publisher()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	tally, stop, err := receive(ctx, plan)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := c.begin(ctx); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, c.end()) }() // before the database goes
	s := &history{plan: plan, consumer: c, down: down, live: live, tally: tally, result: &result}
	s.out, s.terminal = chart.Screen()
	return result, s.tell(ctx)
}

// receive reads the summaries, from the first on.
func receive(ctx context.Context, plan *Plan) (*webhooks.Tally, func() error, error) {
	sub, err := newSubscriber(plan, demoGroup(plan), 1)
	if err != nil {
		return nil, nil, err
	}
	summaries, err := sub.Subscribe(ctx, plan.Summaries())
	if err != nil {
		return nil, nil, errors.Join(err, sub.Close())
	}
	tally, done := &webhooks.Tally{}, make(chan struct{})
	go func() {
		defer close(done)
		for msg := range summaries {
			_ = tally.Receive(msg) // it notes, and has nothing to refuse
			msg.Ack()
		}
	}()
	return tally, func() error { err := sub.Close(); <-done; return err }, nil
}

// publish keeps the plan's rate, or stays behind where Kafka does.
func publish(ctx context.Context, plan *Plan, live *wmkafka.Publisher) error {
	const pace = 20 * time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	start, sent := time.Now(), 0
	for sent < len(plan.deliveries) {
		due := min(int(time.Since(start).Seconds()*float64(plan.Rate)), len(plan.deliveries))
		if due > sent {
			if err := live.Publish(plan.Topic, plan.deliveries[sent:due]...); err != nil {
				return err
			}
			sent = due
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
