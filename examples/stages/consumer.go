package main

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermill "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// consumer is the service: a router with one handler.
type consumer struct {
	plan    *Plan
	db      *sql.DB
	letters *letters.Store
	handle  message.HandlerFunc

	entry    func(poison.Letter) string // where letters re-enter, with stages
	reads    []reading                  // upstream first
	closers  []func() error
	waiting  []atomic.Int64 // in each stage
	staged   atomic.Int64
	reenters atomic.Int64
	retries  atomic.Int64
	absorbed atomic.Int64

	stop func() error // of the router
}

// reading is a topic that the consumer reads, and the group it does so in.
type reading struct {
	sub          *wmkafka.Subscriber
	topic, group string
}

const (
	handlerName   = "store-events"
	stageInFlight = 8 // messages of a stage that are handled at once when they are due
)

// protected adds the handler with Spillway's stages.
func (c *consumer) protected(router *message.Router) error {
	outputs, err := c.publisher() // the router closes it
	if err != nil {
		return err
	}
	waiting, stageOf, err := c.stages() // its publisher is no handler's, and outlives them
	if err != nil {
		return errors.Join(err, outputs.Close())
	}
	c.closers = append(c.closers, outputs.Close, waiting.Close)
	live, err := c.subscriber(c.plan.Topic, c.plan.Topic, 1)
	if err != nil {
		return err
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher:   c.letters,
		Idempotency: keys,
		Queue:       poison.QueueConfig{Origin: wmkafka.Origin},
		Stages: &stages.Config{
			Publisher: waiting,
			Subscriber: func(topic, group string) (message.Subscriber, error) {
				if _, err := c.subscriber(topic, stagesGroup(c.plan), 1); err != nil { // it counts what waits, and consumes nothing
					return nil, err
				}
				return stageOf(topic, group)
			},
			Stages: stages.Delays(c.plan.Stages...),
			Hooks: stages.Hooks{
				OnStage:   c.onStage,
				OnReentry: c.onReentry,
			},
		},
		Receiver: c.receiver(),
	})
	if err != nil {
		return err
	}
	dlc.Attach(router)
	c.entry = dlc.Stages().ReentryTopic
	_, err = dlc.Stages().AddHandler(router, handlerName, c.plan.Topic, live, c.plan.Summaries(), outputs, c.handle)
	return err
}

func (c *consumer) onStage(_ context.Context, s stages.Waiting) {
	c.staged.Add(1)
	c.waiting[s.Stage-1].Add(1)
}

func (c *consumer) onReentry(_ context.Context, r stages.Reentry) {
	c.reenters.Add(1)
	if r.Stage > 0 {
		c.waiting[r.Stage-1].Add(-1)
	}
}

// blocking adds the handler with what Watermill has: the receiver alone is ours, for effects that can be compared.
func (c *consumer) blocking(router *message.Router) error {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	once, err := idempotency.NewReceiver(keys, *c.receiver())
	if err != nil {
		return err
	}
	poisoned, err := watermill.PoisonQueue(c.letters, c.plan.Topic+".poisoned")
	if err != nil {
		return err
	}
	retry := watermill.Retry{
		MaxRetries:      10,
		InitialInterval: c.plan.Stages[0],
		MaxInterval:     c.plan.Stages[len(c.plan.Stages)-1],
		Multiplier:      2,
		OnRetryHook:     func(int, time.Duration) { c.retries.Add(1) },
	}
	outputs, err := c.publisher()
	if err != nil {
		return err
	}
	c.closers = append(c.closers, outputs.Close)
	live, err := c.subscriber(c.plan.Topic, c.plan.Topic, 1)
	if err != nil {
		return err
	}
	router.AddMiddleware(poisoned, retry.Middleware, once.Middleware)
	router.AddHandler(handlerName, c.plan.Topic, live, c.plan.Summaries(), outputs, c.handle)
	return nil
}

func (c *consumer) keys() (idempotency.Store, error) {
	return (&crash.Consumer{Setting: c.plan.Setting, DB: c.db}).Keys(context.Background())
}

func (c *consumer) receiver() *idempotency.ReceiverConfig {
	return &idempotency.ReceiverConfig{Hooks: idempotency.Hooks{
		OnDuplicate: func(context.Context, idempotency.Key) { c.absorbed.Add(1) },
	}}
}
