package main

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// wait is how long a message waits that failed once.
const wait = 2 * time.Second

// load is two routers with their producers, and a worker of campaigns.
type load struct {
	plan
	ctx             context.Context
	db              *harness.Database
	kafka           *harness.Cluster
	staged, ordered *source
	campaigns       *campaigns.Campaigns

	cancel context.CancelFunc
	all    sync.WaitGroup
	failed chan error // of what should run to the end
}

func newLoad(ctx context.Context, p plan, kafka *harness.Cluster, db *harness.Database) (l *load, err error) {
	ctx, cancel := context.WithCancel(ctx)
	l = &load{plan: p, ctx: ctx, cancel: cancel, db: db, kafka: kafka, failed: make(chan error, 8)}
	defer func() {
		if err != nil {
			_ = l.stop()
		}
	}()
	db.SetMaxOpenConns(48)
	db.SetMaxIdleConns(48)
	id := watermill.NewShortUUID()
	l.staged = &source{topic: "bench-pressure-staged-" + id, keys: p.keys, once: 10, forGood: 2, failed: map[int]bool{}}
	l.ordered = &source{topic: "bench-pressure-ordered-" + id, keys: p.keys, once: 5, failed: map[int]bool{}}
	store, err := delay.NewStore(ctx, db.DB, "staged")
	if err != nil {
		return nil, err
	}
	staged, err := l.route(l.staged, spillway.Config{Service: "staged",
		Stages: &stages.Config{Store: store, Publisher: kafka.Pub, Stages: stages.Delays(wait),
			Subscriber: func(_, group string) (message.Subscriber, error) {
				return wmkafka.NewSubscriber(kafka.Brokers, group, wmkafka.SubscriberConfig{InFlight: 8})
			}}})
	if err != nil {
		return nil, err
	}
	if _, err := l.route(l.ordered, spillway.Config{Service: "ordered",
		Ordered: &spillway.OrderedConfig{Delays: []time.Duration{wait}}}); err != nil {
		return nil, err
	}
	return l, l.work(staged)
}

// route runs a router with a channel for a source, and its producer.
func (l *load) route(s *source, config spillway.Config) (*spillway.Channel, error) {
	if err := l.kafka.Create(s.topic); err != nil {
		return nil, err
	}
	config.DB, config.Queue = l.db.DB, poison.QueueConfig{Origin: wmkafka.Origin}
	config.Retry = middleware.RetryConfig{Attempts: 1}
	channel, err := spillway.New(l.ctx, config)
	if err != nil {
		return nil, err
	}
	sub, err := wmkafka.NewSubscriber(l.kafka.Brokers, s.topic, wmkafka.SubscriberConfig{InFlight: 8})
	if err != nil {
		return nil, err
	}
	running := make(chan struct{})
	l.run(func() error {
		return harness.Route(l.ctx, func(router *message.Router) error {
			channel.Attach(router)
			if config.Stages != nil {
				if _, err := channel.Stages().AddConsumerHandler(router, "bench", s.topic, sub,
					s.handle(l.db)); err != nil {
					return err
				}
			} else {
				router.AddConsumerHandler("bench", s.topic, sub, s.handle(l.db))
			}
			go func() { <-router.Running(); close(running) }()
			return nil
		}, nil, l.ctx.Done(), 24*time.Hour)
	})
	select {
	case <-running:
	case err := <-l.failed:
		return nil, err
	}
	l.run(func() error { return s.produce(l.ctx, l.kafka.Brokers, l.rate) })
	return channel, nil
}

// work runs a worker of the campaigns that bring the letters of a channel back.
func (l *load) work(channel *spillway.Channel) (err error) {
	allowed := campaigns.Config{Allow: []string{l.staged.topic}}
	if l.campaigns, err = campaigns.New(l.ctx, channel.Letters(), allowed); err != nil {
		return err
	}
	worker, err := campaigns.NewWorker(l.campaigns, l.kafka.Pub, campaigns.WorkerConfig{})
	if err != nil {
		return err
	}
	l.run(func() error { return worker.Run(l.ctx) })
	return nil
}

// bringBack starts a campaign for the letters that wait.
func (l *load) bringBack() error {
	plan, err := l.campaigns.Plan(l.ctx, campaigns.Request{})
	if err != nil || plan.Letters == 0 {
		return err
	}
	_, err = l.campaigns.Start(l.ctx, campaigns.Request{Concurrency: 16,
		Act: campaigns.Act{By: "bench", Reason: "to measure"}})
	return err
}

// run runs what should not end before the load.
func (l *load) run(what func() error) {
	l.all.Go(func() {
		if err := what(); err != nil && l.ctx.Err() == nil {
			l.failed <- err
		}
	})
}

// stop ends everything.
func (l *load) stop() error {
	l.cancel()
	l.all.Wait()
	select {
	case err := <-l.failed:
		return err
	default:
		return nil
	}
}
