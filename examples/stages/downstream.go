package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// downstream is a service that is asked over HTTP, and down until it is brought up.
type downstream struct {
	up      atomic.Bool
	refused atomic.Int64

	server *http.Server
	client *http.Client
	url    string
	ended  chan error
}

func startDownstream() (*downstream, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the downstream: %w", err)
	}
	d := &downstream{
		client: &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second},
		url:    "http://" + listener.Addr().String() + "/",
		ended:  make(chan error, 1),
	}
	d.server = &http.Server{Handler: http.HandlerFunc(d.answer), ReadHeaderTimeout: 5 * time.Second}
	go func() { d.ended <- d.server.Serve(listener) }()
	return d, nil
}

func (d *downstream) answer(w http.ResponseWriter, _ *http.Request) {
	if !d.up.Load() {
		d.refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// lookUp asks the downstream. That it is not there now says nothing about later.
func (d *downstream) lookUp(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return fmt.Errorf("look up: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection serves the next
	if response.StatusCode >= 500 {
		return classify.Transient(fmt.Errorf("look up: %s", response.Status))
	}
	return nil
}

// before asks the downstream first, for messages that need it.
func (d *downstream) before(handle message.HandlerFunc, needs func(*message.Message) bool) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if needs(msg) {
			if err := d.lookUp(msg.Context()); err != nil {
				return nil, err
			}
		}
		return handle(msg)
	}
}

func (d *downstream) close() error {
	d.client.CloseIdleConnections()
	err := d.server.Close()
	if ended := <-d.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
