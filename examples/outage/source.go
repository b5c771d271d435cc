package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// source is where the webhooks wait.
type source struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	backlog    func(context.Context) (int, error) // how many wait
	exact      bool                               // backlog also counts what is handed out and not acked
	origin     func(*message.Message) poison.Origin

	db      *sql.DB
	bind    func(statement string) string
	keys    idempotency.Store // if it is not one in db
	closing []func() error
}

// openSource makes an empty topic, and the database of the run.
func openSource(ctx context.Context, plan *Plan) (*source, error) {
	open := sources[plan.On]
	if open == nil {
		return nil, fmt.Errorf("-on %q: give %s", plan.On, strings.Join(slices.Sorted(maps.Keys(sources)), ", "))
	}
	s := &source{bind: func(statement string) string { return statement }}
	if err := open(ctx, plan, s); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

var sources = map[string]func(context.Context, *Plan, *source) error{
	"memory": inMemory, "kafka": inKafka, "rabbitmq": inRabbitMQ, "postgres": inPostgres,
}

// atClose adds what close does, before what was added earlier.
func (s *source) atClose(closing func() error) {
	s.closing = append([]func() error{closing}, s.closing...)
}

// close leaves nothing of the run behind.
func (s *source) close() (err error) {
	for _, closing := range s.closing {
		err = errors.Join(err, closing())
	}
	return err
}

func inMemory(_ context.Context, plan *Plan, s *source) error {
	topic := newMemory(plan.InFlight)
	s.publisher, s.subscriber, s.backlog, s.exact = topic, topic, topic.backlog, true
	return s.inFile()
}

// inFile makes a SQLite file for the run.
func (s *source) inFile() error {
	folder, err := os.MkdirTemp("", "spillway-outage-")
	if err != nil {
		return err
	}
	s.atClose(func() error { return os.RemoveAll(folder) })
	if s.db, err = sql.Open("sqlite",
		"file:"+filepath.Join(folder, "webhooks.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"); err != nil {
		return err
	}
	s.atClose(s.db.Close)
	_, err = s.db.Exec(webhooks.Schema)
	return err
}
