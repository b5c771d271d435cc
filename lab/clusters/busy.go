package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// work is what an instance of a busy round does beside its handlers: campaigns and drains redrive the letters of the
// bug that was repaired, a worker works on them, and a person looks at the console.
func (s *service) work(ctx context.Context, channel *spillway.Channel, router *message.Router) (end func() error,
	err error) {
	all, err := campaigns.New(ctx, channel.Letters(), campaigns.Config{Allow: []string{s.topic}})
	if err != nil {
		return nil, err
	}
	pub, err := s.publisher()
	if err != nil {
		return nil, err
	}
	worker, err := campaigns.NewWorker(all, pub, campaigns.WorkerConfig{Lease: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	router.AddPlugin(worker.Plugin)
	pages, err := console.New(console.Config{Campaigns: all, Access: console.Loopback})
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(pages)
	working, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.redrive(working, all, channel.Letters(), pub)
	}()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		look(working, server)
	}()
	return func() error {
		stop()
		<-ended
		<-looked
		server.Close()
		return pub.Close()
	}, nil
}

// redrive starts a campaign and a drain, in turn. Errors are those of the cluster that is broken: what counts is that
// each letter is handled in the end.
func (s *service) redrive(ctx context.Context, all *campaigns.Campaigns, store *letters.Store, pub message.Publisher) {
	act := campaigns.Act{By: "ann", Reason: "the bug is repaired"}
	for n := 0; sleep(ctx, time.Second) == nil; n++ {
		switch {
		case !s.repaired.Load():
		case n%4 == 0:
			rules := redrive.Rules{Allow: []string{s.topic}, Rate: 5, By: "ann"}
			_, _ = redrive.Drain(ctx, store, pub, redrive.DrainConfig{Rules: rules, Max: 20})
		case n%4 == 2:
			_, _ = all.Start(ctx, campaigns.Request{Filter: letters.Filter{Handlers: []string{"ship"}}, Rate: 5,
				Act: act})
		default: // a campaign whose topic was unavailable stops itself
			paused, _ := all.List(ctx, campaigns.List{States: []campaigns.State{campaigns.Paused}})
			for _, c := range paused {
				_, _ = all.Resume(ctx, c.ID, act)
			}
		}
	}
}

// looks are the pages that a console showed, of all rounds.
var looks atomic.Int64

func look(ctx context.Context, server *httptest.Server) {
	for sleep(ctx, 300*time.Millisecond) == nil {
		for _, page := range []string{"/", "/letters", "/campaigns"} {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+page, nil)
			if err != nil {
				return
			}
			answer, err := server.Client().Do(request)
			if err != nil {
				continue
			}
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				looks.Add(1)
			}
		}
	}
}
