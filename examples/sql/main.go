// Command sql runs real GitHub events through a consumer that Spillway protects, on tables of PostgreSQL or MariaDB.
// The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func main() {
	database := flag.String("db", crash.Postgres, "database: postgres or mysql, which may be a MariaDB")
	crash.Main("sql", consume, func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) {
		return run(ctx, plan, *database)
	})
}

func run(ctx context.Context, plan *crash.Plan, database string) (result webhooks.Result, err error) {
	if database != crash.Postgres && database != crash.MySQL {
		return result, fmt.Errorf("-db %q: give postgres or mysql", database)
	}
	if err := plan.Ready(); err != nil {
		return result, err
	}
	db, cleanUp, err := crash.OpenDatabase(&plan.Setting, database)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }() // with the database go all topics
	handled, err := subscriber(ctx, db, consumerGroup, plan.Topic)
	if err != nil {
		return result, err
	}
	collected, err := subscriber(ctx, db, collectorGroup, plan.DeadLetters()...)
	if err != nil {
		return result, err
	}
	reader, err := subscriber(ctx, db, "demo", plan.Summaries())
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	summaries, err := reader.Subscribe(ctx, plan.Summaries())
	if err != nil {
		return result, err
	}
	live, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{})
	if err != nil {
		return result, err
	}
	// The topic's backlog comes first: a letter becomes visible together with the acknowledgement of its delivery.
	backlog := func(ctx context.Context) (int, error) {
		sum, err := handled.Backlog(ctx, plan.Topic)
		for _, letters := range plan.DeadLetters() {
			if err != nil {
				return 0, err
			}
			var n int
			n, err = collected.Backlog(ctx, letters)
			sum += n
		}
		return sum, err
	}
	return crash.Tell(ctx, plan, crash.Broker{Live: live, Summaries: summaries, Backlog: backlog, DB: db})
}

// subscriber returns a subscriber, after it made the tables of its topics.
func subscriber(ctx context.Context, db *sql.DB, group string, topics ...string) (*wmsql.Subscriber, error) {
	sub, err := wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: group})
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if err := sub.SubscribeInitialize(topic); err != nil {
			return nil, err
		}
	}
	return sub, nil
}
