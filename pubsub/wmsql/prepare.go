package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/timing"
)

// SubscribeInitialize creates the tables of topic, unless they exist.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return s.initialize(ctx, topic)
}

func (s *Subscriber) initialize(ctx context.Context, topic string) error {
	if err := s.fit(topic); err != nil {
		return err
	}
	queries := append(s.config.Schema.SchemaInitializingQueries(topic),
		s.dialect.offsets.SchemaInitializingQueries(topic)...)
	if err := create(ctx, s.dialect, s.db, queries); err != nil {
		return fmt.Errorf("wmsql: create the tables of %q: %w", topic, err)
	}
	return nil
}

// create creates tables. In PostgreSQL CREATE TABLE IF NOT EXISTS looks first and creates then, so that of two at once
// one fails; of two topics too, whose sequences have one name when it is cut short.
func create(ctx context.Context, d *dialect, db *sql.DB, queries []wsql.Query) error {
	for try := 1; ; try++ {
		err := execute(ctx, db, queries)
		if err == nil || !d.raced(err) || try == 10 || !timing.Wait(ctx, rand.N(20*time.Millisecond)) {
			return err
		}
	}
}

func (s *Subscriber) fit(topic string) error {
	return s.dialect.fit(topic, s.config.Schema, s.dialect.offsets)
}

// prepare checks that the topic can be consumed, and gives the group a row that its consumers can lock.
func (s *Subscriber) prepare(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.fit(topic); err != nil {
		return err
	}
	if err := s.enter(ctx, topic); err != nil {
		return err
	}
	return s.verifyFirst(ctx, topic)
}

// enter registers the group, and creates the tables if one is missing. A role that may not create tables needs those
// that are there alone.
func (s *Subscriber) enter(ctx context.Context, topic string) error {
	if err := s.join(ctx, topic); err == nil || !s.dialect.missing(err) {
		return err
	}
	if err := s.initialize(ctx, topic); err != nil {
		return err
	}
	return s.join(ctx, topic)
}

// join registers the group, whose tables must be there.
func (s *Subscriber) join(ctx context.Context, topic string) error {
	if err := s.exists(ctx, topic); err != nil {
		return fmt.Errorf("wmsql: topic %q has no table that can be read: %w", topic, err)
	}
	if err := s.register(ctx, topic); err != nil {
		return fmt.Errorf("wmsql: register consumer group %q of %q: %w", s.config.ConsumerGroup, topic, err)
	}
	return nil
}

// register looks first. On MySQL an INSERT IGNORE of a row that exists waits for the row's lock, which a consumer of
// the group holds as long as a handler takes.
func (s *Subscriber) register(ctx context.Context, topic string) error {
	if known, err := s.known(ctx, topic); known || err != nil {
		return err
	}
	for {
		err := s.insert(ctx, topic)
		if err == nil {
			return nil
		}
		if known, _ := s.known(ctx, topic); known { // another consumer was faster
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) { // a busy server is asked again
			return err
		}
	}
}

// insert gives the group its row. It does not wait long: another consumer that was faster may hold the row's lock.
func (s *Subscriber) insert(ctx context.Context, topic string) error {
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := execute(brief, s.db, []wsql.Query{s.source.register(topic, s.config.ConsumerGroup)})
	if err != nil {
		return errors.Join(err, brief.Err()) // not every driver says which
	}
	return nil
}

// known reports whether the group has its row.
func (s *Subscriber) known(ctx context.Context, topic string) (bool, error) {
	var n int
	query := s.source.registered(topic, s.config.ConsumerGroup)
	err := s.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	return n > 0, err
}

func (s *Subscriber) exists(ctx context.Context, topic string) error {
	query := s.source.next(topic, position{}, 0)
	rows, err := s.db.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	rows.Next()
	return rows.Err()
}

// execute runs statements on a *sql.DB or *sql.Tx in their order.
func execute(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, queries []wsql.Query) error {
	for _, query := range queries {
		if _, err := db.ExecContext(ctx, query.Query, query.Args...); err != nil {
			return err
		}
	}
	return nil
}
