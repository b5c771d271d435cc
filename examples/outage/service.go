package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/poison"
)

// service delivers each webhook to the downstream, and stores that it did.
type service struct {
	channel *spillway.Channel
	meter   meter
	end     func() error
}

const (
	owner       = "shop"
	handlerName = "deliver"
)

// begin starts the service, and returns when it has subscribed.
func begin(ctx context.Context, plan *Plan, from *source, down *downstream) (*service, error) {
	s := &service{}
	config := spillway.Config{
		Service:     owner,
		DB:          from.db,
		Idempotency: from.keys,
		Queue: poison.QueueConfig{
			Origin: from.origin,
			Hooks:  poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { s.meter.letters.Add(1) }},
		},
		Receiver: &idempotency.ReceiverConfig{
			Hooks: idempotency.Hooks{
				OnApplied:   func(context.Context, idempotency.Key) { s.meter.note() },
				OnDuplicate: func(context.Context, idempotency.Key) { s.meter.note() },
			},
		},
	}
	if !plan.Without {
		config.Breaker = &breaker.Config{Hooks: breaker.Hooks{OnChange: s.meter.changed}}
	}
	var err error
	if s.channel, err = spillway.New(ctx, config); err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return nil, err
	}
	s.channel.Attach(router)
	router.AddConsumerHandler(handlerName, plan.topic, from.subscriber, handler(from, down))
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(ctx)) }() // it ends by end
	s.end = func() error { return errors.Join(router.Close(), <-ended) }
	select {
	case <-router.Running():
		return s, nil
	case err := <-ended:
		ended <- nil
		return nil, errors.Join(err, router.Close())
	}
}

// handler delivers a webhook before it stores it. A webhook that was cut short is unacceptable, downstream or not.
func handler(from *source, down *downstream) message.NoPublishHandlerFunc {
	store := &webhooks.Faults{Bind: from.bind}
	store.Fixed.Store(true) // this handler is sound: here the downstream alone is not
	return func(msg *message.Message) error {
		if !json.Valid(msg.Payload) {
			return classify.Invalid(errors.New("the webhook is cut short"))
		}
		if err := down.deliver(msg.Context(), msg.UUID); err != nil {
			return err
		}
		_, err := store.Handle(msg)
		return err
	}
}

// breaker returns the state of the breaker, and how many webhooks it holds.
func (s *service) breaker() (state string, held int) {
	if s.channel.Breaker() == nil {
		return "none", 0
	}
	for _, status := range s.channel.Breaker().Health() {
		return string(status.State), status.Waiting // of the only handler
	}
	return string(circuit.Closed), 0
}
