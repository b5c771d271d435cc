package main

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// page has the metrics of an instance. It can be out of reach.
type page struct {
	address     string
	unavailable atomic.Bool
	server      *http.Server
	ended       sync.WaitGroup
	err         error
}

func openPage(registry *prometheus.Registry) (*page, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &page{address: listener.Addr().String()}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	p.server = &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p.unavailable.Load() {
				panic(http.ErrAbortHandler) // the connection ends without an answer
			}
			metrics.ServeHTTP(w, r)
		})}
	p.ended.Go(func() { p.err = p.server.Serve(listener) })
	return p, nil
}

func (p *page) close() error {
	err := p.server.Close()
	p.ended.Wait()
	if errors.Is(p.err, http.ErrServerClosed) {
		return err
	}
	return errors.Join(err, p.err)
}
