package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
)

// instance is one of the service's: a router with one handler.
type instance struct {
	router  *message.Router
	ended   chan error
	running atomic.Int32 // handlers
}

func start(ctx context.Context, plan *Plan, s *source, t *tally) (*instance, error) {
	sub, err := s.subscribe()
	if err != nil {
		return nil, err
	}
	config := spillway.Config{Publisher: letters{t}, Logger: watermill.NopLogger{}}
	if plan.Without {
		config.DrainTimeout = -1
	}
	channel, err := spillway.New(ctx, config)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	channel.Attach(router)
	i := &instance{router: router, ended: make(chan error, 1)}
	router.AddConsumerHandler("ship", plan.topic, sub, func(msg *message.Message) error {
		t.begins(msg.UUID)
		i.running.Add(1)
		defer i.running.Add(-1)
		select {
		case <-time.After(plan.Takes): // a call to another service
			t.finishes(msg.UUID)
			return nil
		case <-msg.Context().Done():
			t.isCut(msg.UUID)
			return msg.Context().Err()
		}
	})
	go func() { i.ended <- router.Run(context.Background()) }()
	select {
	case <-router.Running():
		return i, nil
	case err := <-i.ended:
		return nil, err
	}
}

func (i *instance) close() error {
	if err := i.router.Close(); err != nil {
		return err
	}
	return <-i.ended
}

// letters counts dead letters.
type letters struct{ tally *tally }

func (l letters) Publish(_ string, all ...*message.Message) error {
	l.tally.lettered(len(all))
	return nil
}

func (letters) Close() error { return nil }
