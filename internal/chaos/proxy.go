package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one consumer and one server.
type proxy struct {
	*toxiproxy.Proxy
	busy sync.Mutex // a fault is at it
}

func newProxy(name, upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)
	return &proxy{Proxy: p}, p.Start()
}

// cut closes all connections and takes no new ones for a while.
func (p *proxy) cut(ctx context.Context, lasts time.Duration) error {
	p.Stop()
	wait(ctx, lasts)
	return p.Start()
}

// silence lets nothing through in either direction for a while, without a word to anybody. Then it closes what is stuck.
func (p *proxy) silence(ctx context.Context, lasts time.Duration) error {
	var failed error
	for _, stream := range []string{"upstream", "downstream"} {
		_, err := p.Toxics.AddToxicJson(strings.NewReader(`{"name":"` + stream + `","type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`))
		failed = errors.Join(failed, err)
	}
	wait(ctx, lasts)
	p.Toxics.ResetToxics(context.WithoutCancel(ctx))
	return failed
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
