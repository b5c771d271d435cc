package main

import (
	"context"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// inPostgres makes a topic that is a table, in the database of the run: a webhook, its key and its row commit together.
func inPostgres(ctx context.Context, plan *Plan, s *source) error {
	setting := &crash.Setting{}
	db, cleanUp, err := crash.OpenDatabase(setting, crash.Postgres)
	if err != nil {
		return err
	}
	s.db, s.bind = db, setting.Bind
	s.atClose(cleanUp)
	publisher, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{})
	if err != nil {
		return err
	}
	s.atClose(publisher.Close)
	subscriber, err := wmsql.NewSubscriber(ctx, db,
		wmsql.SubscriberConfig{ConsumerGroup: handlerName})
	if err != nil {
		return err
	}
	s.atClose(subscriber.Close)
	if err := subscriber.SubscribeInitialize(plan.topic); err != nil {
		return err
	}
	if s.keys, err = wmsql.Join(ctx, subscriber, owner); err != nil {
		return err
	}
	s.publisher, s.subscriber, s.origin, s.exact = publisher, subscriber, wmsql.Origin, true
	s.backlog = func(ctx context.Context) (int, error) { return subscriber.Backlog(ctx, plan.topic) }
	return nil
}
