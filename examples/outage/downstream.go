package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// What a downstream does while it is unavailable.
const (
	refuse = "refuse" // nothing listens
	busy   = "busy"   // it answers 503, and when to come again
	hang   = "hang"   // it takes the request and never answers
)

// downstream is a service that is asked over HTTP. It can go away and come back.
type downstream struct {
	calls atomic.Int64 // attempts, refused connections included
	up    atomic.Bool

	how     string
	address string
	client  *http.Client

	mu     sync.Mutex
	server *http.Server
	ended  chan error
}

// patience is how long a caller waits for an answer.
const patience = 200 * time.Millisecond

func startDownstream(how string) (*downstream, error) {
	d := &downstream{how: how, address: "127.0.0.1:0", client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 100},
		Timeout:   patience,
	}}
	if err := d.listen(); err != nil {
		return nil, err
	}
	d.up.Store(true)
	return d, nil
}

// listen serves on the address, which stays the same from the first time on.
func (d *downstream) listen() error {
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		return fmt.Errorf("start the downstream: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address = listener.Addr().String()
	server, ended := &http.Server{Handler: http.HandlerFunc(d.answer), ReadHeaderTimeout: 5 * time.Second},
		make(chan error, 1)
	d.server, d.ended = server, ended
	go func() { ended <- server.Serve(listener) }()
	return nil
}

// leave makes the downstream go away.
func (d *downstream) leave() error {
	d.up.Store(false)
	if d.how == refuse {
		return d.close()
	}
	return nil
}

// comeBack ends the outage.
func (d *downstream) comeBack() (err error) {
	if d.how == refuse {
		err = d.listen()
	}
	d.up.Store(true)
	return err
}

func (d *downstream) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch {
	case d.up.Load():
		w.WriteHeader(http.StatusNoContent)
	case d.how == hang:
		<-r.Context().Done() // the caller has lost patience
	default:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// deliver sends a webhook. If the downstream is busy, the error says when to come again.
func (d *downstream) deliver(ctx context.Context, id string) error {
	d.calls.Add(1)
	d.mu.Lock()
	address := d.address
	d.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/"+id, nil)
	if err != nil {
		return err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection serves the next
	if response.StatusCode < 500 {
		return nil
	}
	return classify.Unavailable(fmt.Errorf("deliver: %s", response.Status),
		classify.RetryAfterHeader(response.Header.Get("Retry-After")))
}

func (d *downstream) close() error {
	d.mu.Lock()
	server, ended := d.server, d.ended
	d.server = nil
	d.mu.Unlock()
	if server == nil {
		return nil
	}
	err := server.Close()
	d.client.CloseIdleConnections()
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
