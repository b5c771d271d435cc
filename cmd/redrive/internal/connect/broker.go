package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
	"github.com/watermill-spillway/spillway/settings"
)

const brokerForms = "use kafka://host:9092,host:9092, amqp://user:password@host:5672,host:5672/ or sql (the " +
	"tables of watermill-sql in --db)"

// Subscriber is a subscriber that knows how much waits in a topic.
type Subscriber interface {
	message.Subscriber
	Backlog(ctx context.Context, topic string) (int, error)
}

// Broker is a connection to a broker. Its publisher confirms what it takes.
type Broker struct {
	message.Publisher
	subscriber func(group string) (Subscriber, error)
}

// Subscriber returns a subscriber of a consumer group. A queue of RabbitMQ knows no groups.
func (b *Broker) Subscriber(group string) (Subscriber, error) { return b.subscriber(group) }

// Open connects to a broker by its URL. db opens the database, for the broker that is one.
func Open(ctx context.Context, address string, db func(context.Context) (*sql.DB, error),
	logger watermill.LoggerAdapter) (*Broker, error) {
	broker, err := open(ctx, address, db, logger)
	if err != nil {
		return nil, fmt.Errorf("--broker: %w", withoutPassword(err, address))
	}
	return broker, nil
}

func open(ctx context.Context, address string, db func(context.Context) (*sql.DB, error),
	logger watermill.LoggerAdapter) (*Broker, error) {
	switch scheme, _, _ := strings.Cut(address, ":"); scheme {
	case "":
		return nil, errors.New("it is empty: give the URL of the broker, or set SPILLWAY_BROKER; " + brokerForms)
	case "kafka":
		return openKafka(address, logger)
	case "amqp", "amqps":
		pub, err := wmamqp.NewPublisher(address, wmamqp.PublisherConfig{Shared: settings.Shared{Logger: logger}})
		return &Broker{pub, func(string) (Subscriber, error) {
			return wmamqp.NewSubscriber(address, wmamqp.SubscriberConfig{Shared: settings.Shared{Logger: logger}})
		}}, err
	case "sql":
		db, err := db(ctx)
		if err != nil {
			return nil, err
		}
		pub, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{Shared: settings.Shared{Logger: logger}})
		return &Broker{pub, func(group string) (Subscriber, error) {
			return wmsql.NewSubscriber(ctx, db,
				wmsql.SubscriberConfig{ConsumerGroup: group, Shared: settings.Shared{Logger: logger}})
		}}, err
	}
	return nil, errors.New("the scheme is unknown: " + brokerForms)
}
