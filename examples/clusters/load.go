package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// instances of the service run at the same time.
const instances = 2

// service is what two instances do, and what they saw.
type service struct {
	*cluster
	topic  string
	db     *sql.DB
	logger watermill.LoggerAdapter

	mu     sync.Mutex
	second map[int64]int // effects
	last   time.Time     // of an effect
	gap    time.Duration // the longest without one
}

var errBug = errors.New("a bug of the handler")

// bad is one message of a hundred: it fails for good.
func bad(id string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32()%100 == 0
}

func (s *service) handle(msg *message.Message) error {
	if bad(msg.UUID) {
		return classify.Permanent(errBug)
	}
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `INSERT INTO effects (id) VALUES ($1)`, msg.UUID)
	if err == nil {
		s.effect(time.Now())
	}
	return err
}

func (s *service) effect(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.second[now.Unix()]++
	if !s.last.IsZero() {
		s.gap = max(s.gap, now.Sub(s.last))
	}
	s.last = now
}

// start starts an instance, and returns what closes it.
func (s *service) start(ctx context.Context) (stop func() error, err error) {
	channel, err := spillway.New(ctx, spillway.Config{Service: "shop", DB: s.db, Queue: poison.QueueConfig{Origin: s.origin}, Logger: s.logger})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, s.logger)
	if err != nil {
		return nil, err
	}
	channel.Attach(router)
	sub, err := s.subscribe(s.topic)
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("ship", s.topic, sub, s.handle)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, err
	}
	return func() error { return errors.Join(router.Close(), <-ended) }, nil
}

// publish publishes each id until it is confirmed.
func (s *service) publish(ctx context.Context, p *plan) (ids []string, err error) {
	pub, err := s.publisher()
	if err != nil {
		return nil, err
	}
	var work sync.WaitGroup
	limit := make(chan struct{}, 512)
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for until := time.Now().Add(p.lasts); time.Now().Before(until) && ctx.Err() == nil; <-tick.C {
		id := fmt.Sprint(len(ids))
		ids = append(ids, id)
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			for pub.Publish(s.topic, message.NewMessage(id, []byte(`{"order":1}`))) != nil {
				if sleep(ctx, 100*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	work.Wait()
	return ids, errors.Join(ctx.Err(), pub.Close())
}

// openBase gives the round a schema of its own.
func openBase(ctx context.Context, address, name string) (*sql.DB, error) {
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	db, err := sql.Open("pgx", address+separator+"search_path="+name)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{`CREATE SCHEMA ` + name, `CREATE TABLE effects (id text NOT NULL)`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}
