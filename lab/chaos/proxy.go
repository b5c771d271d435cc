package main

import (
	"context"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
)

// proxy stands between one consumer and one server.
type proxy struct {
	*faultproxy.Proxy
	busy sync.Mutex // held by a fault
}

func newProxy(server string) (*proxy, error) {
	p, err := faultproxy.New(server)
	return &proxy{Proxy: p}, err
}

// during applies a fault for a while.
func (p *proxy) during(ctx context.Context, lasts time.Duration, fault func()) {
	fault()
	wait(ctx, lasts)
	p.Heal()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
