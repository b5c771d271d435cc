package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
)

// site is a broker with its database, as one process reaches them. The consumers and the driver have the same.
type site struct {
	setting
	logger watermill.LoggerAdapter
	db     *sql.DB

	publisher func() (publisher, error)
	// source returns the publisher of the live topic. Default: as the others.
	source     func() (publisher, error)
	subscriber func(group string, inFlight int) (subscriber, error)
	// stages returns the publisher and the subscribers of the stage topics. Default: a publisher, and a subscriber for
	// each.
	stages func() (message.Publisher, func(topic, group string) (message.Subscriber, error), error)
	// ofStages is the group of all stages, on Kafka. Elsewhere each stage has one with the name of its topic.
	ofStages string
	origin   func(*message.Message) poison.Origin
	// keys is the store of an idempotent receiver for what live delivers.
	keys func(ctx context.Context, live subscriber) (idempotency.Store, error)
	// later opens the store of what waits for its next attempt. If it is nil, that waits in topics.
	later func(context.Context) (*delay.Store, error)

	// create makes the live topic, that of outputs, and those of dead letters; remove removes all.
	create, remove func() error
	// oversized is the payload or the metadata of a message that is as large as the publisher takes, but for less.
	oversized func(msg *message.Message, less int)
	// refused is an output that the broker accepts never, for what it is.
	refused func(id string) *message.Message
}

// publisher and subscriber are what the adapters have in common.
type publisher interface {
	message.Publisher
	InitializeTopics(topics ...string) error
}

type subscriber interface {
	message.Subscriber
	Backlog(ctx context.Context, topic string) (int, error)
}

// serversOf are the servers of each broker, by its name: the broker's own, then that of the database.
var serversOf = map[string][]string{
	"kafka":    {"kafka", "postgres"},
	"rabbitmq": {"rabbitmq", "mariadb"},
	"postgres": {"postgres"},
	"mariadb":  {"mariadb"},
}

// service is whose keys they are.
var service = "chaos"

// open connects to nothing that is not asked for something.
func open(s setting, logger watermill.LoggerAdapter) (*site, error) {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return nil, errors.New("the address of the database is none") // the error would show its password
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	site := &site{setting: s, logger: logger, db: db}
	site.source = func() (publisher, error) { return site.publisher() }
	site.stages = func() (message.Publisher, func(topic, group string) (message.Subscriber, error), error) {
		later, err := site.publisher()
		return later, func(_, group string) (message.Subscriber, error) { return site.subscriber(group, inFlight) }, err
	}
	site.keys = func(ctx context.Context, _ subscriber) (idempotency.Store, error) {
		return idempotency.NewStore(ctx, db, service)
	}
	switch {
	case s.onTables():
		onTables(site)
	case s.Broker == "kafka":
		onKafka(site)
	case s.Broker == "rabbitmq":
		onRabbitMQ(site)
	default:
		return nil, fmt.Errorf("setting Broker %q: give kafka, rabbitmq, postgres or mariadb", s.Broker)
	}
	return site, nil
}

func (s *site) close() error { return s.db.Close() }

// bind writes a statement's question marks as the database wants them.
func (s *site) bind(statement string) string {
	if s.Driver == "mysql" {
		return statement
	}
	parts := strings.Split(statement, "?")
	for i := range parts[:len(parts)-1] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// waiting counts what the consumers have not settled: in the topic first, because what leaves it in between is then
// seen where it arrives.
func (s *site) waiting(ctx context.Context) (sum int, err error) {
	for _, topic := range append([]string{s.Topic}, s.stageTopics()...) {
		group := cmp.Or(s.ofStages, topic) // a stage's
		if topic == s.Topic {
			group = s.group()
		}
		n, err := s.backlog(ctx, group, topic)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	if s.later != nil {
		later, err := s.later(ctx)
		if err != nil {
			return 0, err
		}
		kept, err := hidden.Of(later).Waiting(ctx)
		if err != nil {
			return 0, err
		}
		for _, w := range kept {
			sum += w.Messages
		}
	}
	return sum, nil
}

func (s *site) backlog(ctx context.Context, group, topic string) (int, error) {
	sub, err := s.subscriber(group, 1)
	if err != nil {
		return 0, err
	}
	n, err := sub.Backlog(ctx, topic)
	return n, errors.Join(err, sub.Close())
}
