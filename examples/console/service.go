package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

const topic = "webhooks"

// service is a router with its handler, its dead letters in the database, and a worker of campaigns.
type service struct {
	live       *gochannel.GoChannel
	router     *message.Router
	campaigns  *campaigns.Campaigns
	faults     *webhooks.Faults
	deliveries []*message.Message
	events     []*message.Message
}

func newService(ctx context.Context, db *sql.DB, seed uint64) (*service, error) {
	events, err := webhooks.Load("")
	if err != nil {
		return nil, err
	}
	s := &service{live: gochannel.NewGoChannel(gochannel.Config{}, nil), events: events}
	s.deliveries, s.faults = webhooks.Prepare(events, seed)
	if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil); err != nil {
		return nil, err
	}
	dlc, err := spillway.New(ctx, spillway.Config{
		Service: "webhooks", DB: db,
		Retry: middleware.RetryConfig{Backoff: middleware.Backoff{Initial: 20 * time.Millisecond,
			Max: 200 * time.Millisecond}},
	})
	if err != nil {
		return nil, err
	}
	if s.campaigns, err = campaigns.New(ctx, dlc.Letters(), campaigns.Config{Allow: []string{topic}}); err != nil {
		return nil, err
	}
	worker, err := campaigns.NewWorker(s.campaigns, s.live, campaigns.WorkerConfig{Poll: 200 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	dlc.Attach(s.router)
	s.router.AddPlugin(worker.Plugin)
	s.router.AddConsumerHandler("store-events", topic, s.live, func(msg *message.Message) error {
		_, err := s.faults.Handle(msg)
		return err
	})
	return s, nil
}

// start runs the router. The caller must call stop.
func (s *service) start(ctx context.Context) (stop func() error, err error) {
	done := make(chan error, 1)
	go func() { done <- s.router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-s.router.Running():
		return func() error { return errors.Join(s.router.Close(), <-done) }, nil
	case err := <-done:
		return nil, err
	}
}
