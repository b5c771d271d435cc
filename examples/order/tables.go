package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// tablesBroker is the database itself: topics are tables, and all of a message is one transaction.
type tablesBroker struct {
	*plan
	db *sql.DB // only of the process that judges
}

func newTables(p *plan) (broker, error) { return &tablesBroker{plan: p}, nil }

// open is called when the database of the run is there.
func (t *tablesBroker) open() (err error) {
	if t.db == nil {
		t.db, err = sql.Open(t.Driver, t.DSN)
	}
	return err
}

func (t *tablesBroker) subscriber(ctx context.Context, db *sql.DB) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{PollInterval: 20 * time.Millisecond,
		Key: func(msg *message.Message) string { return msg.Metadata.Get(laneKey) }})
}

func (t *tablesBroker) create() error {
	if err := t.open(); err != nil {
		return err
	}
	sub, err := t.subscriber(context.Background(), t.db)
	if err != nil {
		return err
	}
	return sub.SubscribeInitialize(t.Topic)
}

func (t *tablesBroker) remove() error { return t.db.Close() } // the tables go with their database

func (t *tablesBroker) produce(from, to int) error {
	publisher, err := wmsql.NewPublisher(context.Background(), t.db, wmsql.PublisherConfig{})
	if err != nil {
		return err
	}
	if err := publisher.InitializeTopics(t.outputs()); err != nil {
		return err
	}
	for n := from; n < to; {
		var some []*message.Message
		for ; n < to && len(some) < 500; n++ {
			msg := message.NewMessage(t.idOf(n), message.Payload(fmt.Sprint(n)))
			msg.Metadata.Set(laneKey, t.keyOf(n))
			some = append(some, msg)
		}
		if err := publisher.Publish(t.Topic, some...); err != nil {
			return err
		}
	}
	return publisher.Close()
}

func (t *tablesBroker) consume(config *spillway.Config) (message.Subscriber, message.Publisher, error) {
	ctx, db := context.Background(), config.DB
	sub, err := t.subscriber(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	if config.Idempotency, err = wmsql.Join(ctx, sub, config.Service); err != nil {
		return nil, nil, err
	}
	config.Queue.Origin = wmsql.Origin
	publisher, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{})
	return sub, publisher, err
}

func (*tablesBroker) partition(*message.Message) int { return 0 }

func (t *tablesBroker) behind() (int, error) {
	sub, err := t.subscriber(context.Background(), t.db)
	if err != nil {
		return 0, err
	}
	return sub.Backlog(context.Background(), t.Topic)
}

// published reads the table of outputs in the order of its numbers.
func (t *tablesBroker) published(each func(output) error) error {
	table, by := wsql.DefaultPostgreSQLSchema{}.MessagesTable(t.outputs()), `"offset"`
	if t.Driver == "mysql" {
		table, by = wsql.DefaultMySQLSchema{}.MessagesTable(t.outputs()), "`offset`"
	}
	rows, err := t.db.Query(`SELECT uuid, payload FROM ` + table + ` ORDER BY ` + by)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var out output
		if err := rows.Scan(&out.id, &out.number); err != nil {
			return err
		}
		out.lane, _, _ = strings.Cut(out.id, "/")
		if err := each(out); err != nil {
			return err
		}
	}
	return rows.Err()
}
