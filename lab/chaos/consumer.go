package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	// inFlight is how many messages of a stage are handled at once.
	inFlight = 16
	// callTimeout is longer than a busy machine takes to answer.
	callTimeout = 10 * time.Second
)

// keyOf takes the id, or the payload's hash of a message without one.
func keyOf(msg *message.Message) (string, error) {
	if msg.UUID != "" {
		return msg.UUID, nil
	}
	return idempotency.ByPayloadHash(msg)
}

// consume is the service: a router with its handler, and the whole front door. It runs until ctx ends.
func consume(ctx context.Context, s setting, started func(*message.Router)) (err error) {
	logger := watermill.NewStdLoggerWithOut(os.Stderr, s.Debug, false)
	site, err := open(s, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.close()) }()
	// A handler that stops closes its publisher, so dead letters and stages have publishers of their own.
	outputs, err := site.publisher()
	if err != nil {
		return err
	}
	deadLetters, err := site.publisher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deadLetters.Close()) }()
	later, waits, err := site.stages()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, later.Close()) }()
	deliveries, err := site.subscriber(s.group(), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Close()) }()

	keys, err := site.keys(ctx, deliveries)
	if err != nil {
		return err
	}
	var waiting *delay.Store
	if site.later != nil {
		if waiting, err = site.later(ctx); err != nil {
			return err
		}
	}
	crashes, err := sqlmarks.NewStore(ctx, site.db, "chaos")
	if err != nil {
		return err
	}
	h := &handler{seed: s.Seed, site: site}
	var outages *breaker.Config
	if s.Downstream != "" {
		h.client = downstream.NewClient(s.Downstream, callTimeout)
		defer h.client.Close()
		outages = &breaker.Config{}
	}
	dlc, err := spillway.New(ctx, spillway.Config{
		Publisher:   deadLetters,
		Idempotency: keys,
		Receiver:    &idempotency.ReceiverConfig{Key: keyOf},
		Logger:      logger,
		Queue:       poison.QueueConfig{Origin: site.origin},
		CrashLimit:  &crashlimit.Config{Store: crashes},
		Breaker:     outages,
		Stages: &stages.Config{
			Publisher:  later,
			Subscriber: waits,
			Stages:     stages.Delays(delays...),
			Store:      waiting,
		},
		Retry: middleware.RetryConfig{Attempts: 3,
			Backoff: middleware.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond}},
		Purge: &idempotency.PurgeConfig{Retention: 30 * 24 * time.Hour},
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, logger)
	if err != nil {
		return err
	}
	dlc.Attach(router)
	if _, err := dlc.Stages().AddHandler(router, handlerName, s.Topic, deliveries, s.outputs(), outputs,
		h.handle); err != nil {
		return err
	}
	go started(router)
	return router.Run(ctx)
}
