package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	kept "github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// writers put messages at the same time. SQLite has one writer.
const writers = 16

// nowhere takes everything at once, so that the figure is of the store and the relay alone.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }
func (nowhere) Close() error                              { return nil }

// moves is how many messages a second one relay moves, out of a table in which all are due, to a topic.
func moves(c *cluster, p plan) (figures []harness.Figure, err error) {
	stages, err := wmkafka.NewPublisher(c.Brokers, wmkafka.PublisherConfig{InFlight: 200})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stages.Close()) }()
	topic := "bench-moves-" + watermill.NewShortUUID()
	if err := c.Create(topic); err != nil {
		return nil, err
	}
	for _, name := range []string{"postgres", "mariadb", "sqlite"} {
		d, err := open(c.Ctx, name)
		if err != nil {
			return nil, err
		}
		for _, to := range []struct {
			name string
			pub  message.Publisher
		}{{"kafka", stages}, {"nowhere", nowhere{}}} {
			took, err := d.move(c.Ctx, topic, to.pub, p.moves)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", name, err), d.Close())
			}
			figures = append(figures, harness.Figure{
				"db": name, "to": to.name, "per_s": harness.Whole(float64(p.moves) / took.Seconds()),
			})
		}
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	return figures, c.Remove()
}

// move is how long n messages that are due take, from the start of a relay until the last is published and deleted.
func (d *database) move(ctx context.Context, topic string, pub message.Publisher, n int) (time.Duration, error) {
	if err := d.put(ctx, topic, n); err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var moved atomic.Int64
	relay := delayed.NewRelay(kept.In(d.store).(*delayed.Store), counting{pub, func(published int) {
		if moved.Add(int64(published)) == int64(n) {
			stop() // Run returns when what was published is deleted
		}
	}}, delayed.RelayConfig{})
	began := time.Now()
	if err := relay.Run(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	left, err := kept.In(d.store).(*delayed.Store).Waiting(context.WithoutCancel(ctx))
	if err == nil && (len(left) > 0 || moved.Load() != int64(n)) {
		err = fmt.Errorf("%d of %d messages were moved, and %d topics wait", moved.Load(), n, len(left))
	}
	return took, err
}

// counting is a publisher that says how many messages it has published.
type counting struct {
	message.Publisher
	published func(n int)
}

func (c counting) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err == nil {
		c.published(len(messages))
	}
	return err
}

func (d *database) put(ctx context.Context, topic string, n int) error {
	var all sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, writers)
	for i := range errs {
		all.Go(func() {
			for number := int(next.Add(1)); number <= n && errs[i] == nil; number = int(next.Add(1)) {
				errs[i] = kept.In(d.store).(*delayed.Store).Put(ctx, topic, harness.Numbered(number), 0)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
