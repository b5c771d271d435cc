package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// database is the one that is measured, in a schema of its own.
type database struct {
	ctx    context.Context
	name   string
	db     *sql.DB
	remove func() error

	schema  func(batch int) wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter
	insert  string // the handler's one statement
}

func newDatabase(ctx context.Context, name string) (*database, error) {
	address, err := services.Lookup(name)
	if err != nil {
		return nil, err
	}
	own := "spillway_test_figures_" + strings.ToLower(rand.Text()[:8])
	d := &database{ctx: ctx, name: name}
	driver, create, drop := "pgx", `CREATE SCHEMA `+own, `DROP SCHEMA `+own+` CASCADE`
	var dsn string
	if name == "postgres" {
		d.schema = func(batch int) wsql.SchemaAdapter { return wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch} }
		d.offsets, d.insert = wsql.DefaultPostgreSQLOffsetsAdapter{}, `INSERT INTO effects (id) VALUES ($1)`
		u, err := url.Parse(address)
		if err != nil {
			return nil, errors.New("the address of PostgreSQL is no URL")
		}
		query := u.Query()
		query.Set("search_path", own)
		u.RawQuery = query.Encode()
		dsn = u.String()
	} else {
		d.schema = func(batch int) wsql.SchemaAdapter { return wsql.DefaultMySQLSchema{SubscribeBatchSize: batch} }
		d.offsets, d.insert = wsql.DefaultMySQLOffsetsAdapter{}, `INSERT INTO effects (id) VALUES (?)`
		driver, create, drop = "mysql", `CREATE DATABASE `+own, `DROP DATABASE `+own
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return nil, errors.New("the address of MariaDB is no data source name")
		}
		config.DBName = own
		dsn = config.FormatDSN()
	}
	admin, err := sql.Open(driver, address)
	if err != nil {
		return nil, err
	}
	d.remove = func() error {
		_, err := admin.Exec(drop)
		return errors.Join(err, admin.Close())
	}
	if _, err := admin.ExecContext(ctx, create); err != nil {
		return nil, errors.Join(err, admin.Close())
	}
	if d.db, err = sql.Open(driver, dsn); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	d.db.SetMaxIdleConns(10)
	if _, err := d.db.ExecContext(ctx, `CREATE TABLE effects (id VARCHAR(36) NOT NULL)`); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) close() error { return errors.Join(d.db.Close(), d.remove()) }

// fill makes a topic, in the tables that watermill-sql makes by default, with n messages of 5 metadata keys and 1 KiB.
func (d *database) fill(topic string, n int) error {
	pub, err := wsql.NewPublisher(d.db, wsql.PublisherConfig{SchemaAdapter: d.schema(0), AutoInitializeSchema: true}, nil)
	if err != nil {
		return err
	}
	payload := []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	for n > 0 {
		var messages []*message.Message
		for range min(n, 500) {
			msg := message.NewMessage(watermill.NewUUID(), payload)
			for _, key := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
				msg.Metadata.Set(key, "value")
			}
			messages = append(messages, msg)
		}
		if err := pub.Publish(topic, messages...); err != nil {
			return err
		}
		n -= len(messages)
	}
	if d.name == "postgres" {
		_, err = d.db.ExecContext(d.ctx, `ANALYZE`)
	}
	return err
}

// stock is how long watermill-sql's subscriber takes for n messages, each with a transaction of the handler's own.
func (d *database) stock(topic string, n, batch int) (time.Duration, error) {
	sub, err := wsql.NewSubscriber(d.db, wsql.SubscriberConfig{
		ConsumerGroup: watermill.NewShortUUID(), SchemaAdapter: d.schema(batch), OffsetsAdapter: d.offsets, InitializeSchema: true,
	}, nil)
	if err != nil {
		return 0, err
	}
	return d.route(topic, n, sub, func(*message.Router) {}, func(msg *message.Message) (err error) {
		tx, err := d.db.BeginTx(msg.Context(), nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(msg.Context(), d.insert, msg.UUID); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// spillway is how long ours takes for n messages, each with its key and its acknowledgement in one transaction.
func (d *database) spillway(topic string, n, batch int) (time.Duration, error) {
	sub, err := wmsql.NewSubscriber(d.ctx, d.db, wmsql.SubscriberConfig{
		ConsumerGroup: watermill.NewShortUUID(), InitializeSchema: true, Batch: batch,
	})
	if err != nil {
		return 0, err
	}
	dead, err := wmsql.NewPublisher(d.ctx, d.db, wmsql.PublisherConfig{})
	if err != nil {
		return 0, err
	}
	keys, err := wmsql.Join(context.Background(), sub, idempotency.StoreConfig{Service: "figures"})
	if err != nil {
		return 0, err
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher: dead, Idempotency: keys, Receiver: idempotency.ReceiverConfig{Consumer: watermill.NewShortUUID()},
	})
	if err != nil {
		return 0, err
	}
	return d.route(topic, n, sub, dlc.Attach, func(msg *message.Message) error {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), d.insert, msg.UUID)
		return err
	})
}

// route measures from the first handler call to the last, the others acked by then.
func (d *database) route(topic string, n int, sub message.Subscriber, attach func(*message.Router), handle message.NoPublishHandlerFunc) (took time.Duration, err error) {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	attach(router)
	var began atomic.Pointer[time.Time]
	var handled atomic.Int64
	done := make(chan time.Duration, 1)
	end := sync.OnceFunc(func() { done <- time.Since(*began.Load()) })
	router.AddConsumerHandler("figures", topic, sub, func(msg *message.Message) error {
		switch handled.Add(1) {
		case 1:
			now := time.Now()
			began.Store(&now)
		case int64(n):
			end()
		}
		return handle(msg)
	})
	ran := make(chan error, 1)
	go func() { ran <- router.Run(d.ctx) }()
	select {
	case took = <-done:
	case err := <-ran:
		return 0, fmt.Errorf("the router ended early: %w", err)
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
	return took, errors.Join(router.Close(), <-ran)
}
