package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/watermill-spillway/spillway/redrive/console"
)

// pages are those of the service. The console is two lines of them.
func (s *service) pages() (http.Handler, error) {
	mux := http.NewServeMux()
	letters, err := console.New(console.Config{Campaigns: s.campaigns, Access: everyone})
	if err != nil {
		return nil, err
	}
	mux.Handle("/deadletters/", http.StripPrefix("/deadletters", letters))

	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		state, button := "has three bugs", `<form method="post" action="/fix"><button>Deploy the fix</button></form>`
		if s.faults.Fixed.Load() {
			state, button = "is fixed", ""
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Webhooks</title>
<style>:root{color-scheme:light dark;font:16px system-ui}body{max-width:40rem;margin:2rem auto;padding:0 1rem}</style>
<h1>Webhooks</h1><p>This service stores webhooks. It `+state+`.</p>`+button+`<p><a href="deadletters/">Its dead letters</a></p>`)
	})
	mux.HandleFunc("POST /fix", func(w http.ResponseWriter, r *http.Request) {
		s.faults.Fixed.Store(true)
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	return http.NewCrossOriginProtection().Handler(mux), nil
}

// everyone says who sends a request. A service looks into its session here. This demo has no log-in, and listens on one
// machine.
func everyone(*http.Request) (console.Person, error) {
	return console.Person{Name: "ann", Role: console.Approve}, nil
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
