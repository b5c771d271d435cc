package conformance

import (
	"context"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between a process and the broker, in this process.
type proxy struct {
	*toxiproxy.Proxy
	b *bench
}

func (b *bench) proxy() *proxy {
	b.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), b.Name(), "127.0.0.1:0", b.target.Address)
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Stop)
	return &proxy{p, b}
}

// cut closes all connections and takes no new ones; mend takes them again.
func (p *proxy) cut() { p.Stop() }

func (p *proxy) mend() {
	p.b.Helper()
	if err := p.Start(); err != nil {
		p.b.Fatal(err)
	}
}

// slow delays what the broker says.
func (p *proxy) slow() {
	p.b.Helper()
	p.toxic(`{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":300,"jitter":100}}`)
}

// halfOpen lets nothing through any more in either direction, without a word to anybody. heal closes what is stuck and
// lets new connections through.
func (p *proxy) halfOpen() {
	p.b.Helper()
	p.toxic(`{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
	p.toxic(`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

func (p *proxy) heal() { p.Toxics.ResetToxics(context.Background()) }

func (p *proxy) toxic(json string) {
	p.b.Helper()
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		p.b.Fatal(err)
	}
}
