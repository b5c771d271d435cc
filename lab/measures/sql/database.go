package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// database is the one that is measured, with a table of effects.
type database struct {
	*harness.Database
	ctx     context.Context
	schema  func(batch int) wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter
}

func open(ctx context.Context, name string) (*database, error) {
	made, err := harness.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &database{Database: made, ctx: ctx}
	if name == "postgres" {
		d.schema = func(batch int) wsql.SchemaAdapter { return wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch} }
		d.offsets = wsql.DefaultPostgreSQLOffsetsAdapter{}
	} else {
		d.schema = func(batch int) wsql.SchemaAdapter { return wsql.DefaultMySQLSchema{SubscribeBatchSize: batch} }
		d.offsets = wsql.DefaultMySQLOffsetsAdapter{}
	}
	if err := d.Effects(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// fill makes a topic, in the tables that watermill-sql makes by default, with n messages of 5 metadata keys and 1 KiB.
func (d *database) fill(topic string, n int) error {
	pub, err := wsql.NewPublisher(d.DB, wsql.PublisherConfig{SchemaAdapter: d.schema(0), AutoInitializeSchema: true},
		nil)
	if err != nil {
		return err
	}
	for n > 0 {
		var messages []*message.Message
		for range min(n, 500) {
			messages = append(messages, harness.Message())
		}
		if err := pub.Publish(topic, messages...); err != nil {
			return err
		}
		n -= len(messages)
	}
	if d.Name == "postgres" {
		_, err = d.ExecContext(d.ctx, `ANALYZE`)
	}
	return err
}

// stock is how long watermill-sql's subscriber takes for n messages, each with a transaction of the handler's own.
func (d *database) stock(topic string, n, batch int) (time.Duration, error) {
	sub, err := wsql.NewSubscriber(d.DB, wsql.SubscriberConfig{
		ConsumerGroup: watermill.NewShortUUID(), SchemaAdapter: d.schema(batch), OffsetsAdapter: d.offsets,
		InitializeSchema: true,
	}, nil)
	if err != nil {
		return 0, err
	}
	return harness.Consume(d.ctx, topic, n, sub, func(*message.Router) {}, func(msg *message.Message) (err error) {
		tx, err := d.BeginTx(msg.Context(), nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(msg.Context(), d.Insert(), msg.UUID); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// spillway is how long ours takes for n messages, each with its key and its acknowledgement in one transaction.
func (d *database) spillway(topic string, n, batch int) (time.Duration, error) {
	sub, dlc, err := d.protected(batch, poison.Hooks{})
	if err != nil {
		return 0, err
	}
	return harness.Consume(d.ctx, topic, n, sub, dlc.Attach, d.apply)
}

// apply is the handler: one statement in the message's transaction.
func (d *database) apply(msg *message.Message) error {
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), d.Insert(), msg.UUID)
	return err
}

// protected is a subscriber and a channel with everything in one transaction.
func (d *database) protected(batch int, hooks poison.Hooks) (*wmsql.Subscriber, *spillway.Channel, error) {
	sub, err := wmsql.NewSubscriber(d.ctx, d.DB, wmsql.SubscriberConfig{
		ConsumerGroup: watermill.NewShortUUID(), Batch: batch,
	})
	if err != nil {
		return nil, nil, err
	}
	dead, err := wmsql.NewPublisher(d.ctx, d.DB, wmsql.PublisherConfig{})
	if err != nil {
		return nil, nil, err
	}
	keys, err := wmsql.Join(context.Background(), sub, "bench")
	if err != nil {
		return nil, nil, err
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher: dead, Idempotency: keys, Receiver: &idempotency.ReceiverConfig{Consumer: watermill.NewShortUUID()},
		Queue: poison.QueueConfig{Hooks: hooks},
	})
	return sub, dlc, err
}
