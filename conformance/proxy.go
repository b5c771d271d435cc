package conformance

import "github.com/watermill-spillway/spillway/internal/testing/faultproxy"

// proxy stands between a process and the broker, in this process.
func (b *bench) proxy() *faultproxy.Proxy {
	b.Helper()
	p, err := faultproxy.New(b.target.Address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return p
}
