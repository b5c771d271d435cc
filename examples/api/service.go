package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const topic = "orders"

// service is a router with its handler, its dead letters in the database, a worker of campaigns, and the console.
type service struct {
	live    *gochannel.GoChannel
	router  *message.Router
	store   *letters.Store
	handler handler
	web     http.Handler
}

func newService(ctx context.Context, db *sql.DB) (*service, error) {
	s := &service{live: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	dlc, err := spillway.New(ctx, spillway.Config{Service: "shop", DB: db,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: 5 * time.Millisecond,
			Max: 20 * time.Millisecond}}})
	if err != nil {
		return nil, err
	}
	s.store = dlc.Letters()
	all, err := campaigns.New(ctx, s.store, campaigns.Config{Allow: []string{topic}})
	if err != nil {
		return nil, err
	}
	worker, err := campaigns.NewWorker(all, s.live, campaigns.WorkerConfig{Poll: 50 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil); err != nil {
		return nil, err
	}
	dlc.Attach(s.router)
	s.router.AddPlugin(worker.Plugin)
	s.router.AddConsumerHandler("store-orders", topic, s.live, s.handler.handle)
	pages, err := console.New(console.Config{Campaigns: all,
		Access: people{"token-ann": {Name: "ann", Role: console.Operate},
			"token-bob": {Name: "bob", Role: console.Approve}}.access})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/deadletters/", http.StripPrefix("/deadletters", pages))
	mux.HandleFunc("POST /deploy", func(http.ResponseWriter, *http.Request) { s.handler.fixed.Store(true) })
	s.web = mux
	return s, nil
}

// people are the tokens of a service, and whose they are. A real service keeps hashes of them, or asks who issued them.
type people map[string]console.Person

func (p people) access(r *http.Request) (console.Person, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return p[token], nil // whom it does not know may see nothing
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
