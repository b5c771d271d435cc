package wmkafka

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// lastWords is how long a subscription that ends may talk to the brokers after settleGrace: to commit and to leave.
const lastWords = 5 * time.Second

// connections are those of a subscription. Its end would wait for every time-out of a broker that has fallen silent,
// one after the other, so they can be cut.
type connections struct {
	dialer interface {
		Dial(network, address string) (net.Conn, error)
	}

	lock sync.Mutex
	open map[*connection]struct{} // nil after the cut
}

type connection struct {
	net.Conn
	of *connections
}

var errCut = errors.New("wmkafka: the connection was cut, because its time is over")

// through returns a copy of config whose connections are those of the result.
func through(config *sarama.Config) (*sarama.Config, *connections) {
	own := *config
	cs := &connections{open: make(map[*connection]struct{}), dialer: config.Net.Proxy.Dialer}
	if !config.Net.Proxy.Enable {
		cs.dialer = &net.Dialer{Timeout: config.Net.DialTimeout, KeepAlive: config.Net.KeepAlive,
			LocalAddr: config.Net.LocalAddr}
	}
	own.Net.Proxy.Enable, own.Net.Proxy.Dialer = true, cs
	return &own, cs
}

// Dial connects as the configuration says, until the cut.
func (cs *connections) Dial(network, address string) (net.Conn, error) {
	cs.lock.Lock()
	cut := cs.open == nil
	cs.lock.Unlock()
	if cut {
		return nil, errCut
	}
	conn, err := cs.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	own := &connection{Conn: conn, of: cs}
	cs.lock.Lock()
	defer cs.lock.Unlock()
	if cs.open == nil {
		_ = conn.Close()
		return nil, errCut
	}
	cs.open[own] = struct{}{}
	return own, nil
}

// cut closes what is open, and nothing opens any more.
func (cs *connections) cut() {
	cs.lock.Lock()
	defer cs.lock.Unlock()
	for conn := range cs.open {
		_ = conn.Conn.Close()
	}
	cs.open = nil
}

// Close closes the connection and forgets it.
func (c *connection) Close() error {
	c.of.lock.Lock()
	delete(c.of.open, c)
	c.of.lock.Unlock()
	return c.Conn.Close()
}
