package main

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

func newConsumer(plan *Plan, db *sql.DB, store *letters.Store, handle message.HandlerFunc) *consumer {
	return &consumer{plan: plan, db: db, letters: store, handle: handle,
		waiting: make([]atomic.Int64, len(plan.Stages))}
}

// begin starts the service, and returns when it has subscribed.
func (c *consumer) begin(ctx context.Context) error {
	add := c.protected
	if c.plan.Blocking {
		add = c.blocking
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return err
	}
	if err := add(router); err != nil {
		return errors.Join(err, c.close())
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(ctx)) }() // it ends by end
	c.stop = func() error { return errors.Join(router.Close(), <-ended) }
	select {
	case <-router.Running():
		return nil
	case err := <-ended:
		ended <- nil
		return errors.Join(err, c.end())
	}
}

// end stops the service, which gives back what it has not handled.
func (c *consumer) end() error {
	if c.stop == nil {
		return nil
	}
	stop := c.stop
	c.stop = nil
	return errors.Join(stop(), c.close())
}

// close closes what belongs to no handler.
func (c *consumer) close() (err error) {
	for _, closing := range c.closers {
		err = errors.Join(err, closing())
	}
	c.closers = nil
	return err
}

// settled waits until everything is acked, or the time is up.
func (c *consumer) settled(ctx context.Context, limit time.Duration) (bool, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		n, err := c.backlog(ctx)
		if err != nil || n == 0 {
			return err == nil, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}
