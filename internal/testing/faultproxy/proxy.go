// Package faultproxy is a TCP proxy that harms what passes, for tests of what a lost, slow or silent connection does.
//
// A Proxy stands between clients and one server. It starts without a fault. [Proxy.Cut] closes all connections and
// refuses new ones; [Proxy.HalfOpen] keeps them open and drops what either side says; [Proxy.Stall] stops reading, so
// that writes block; [Proxy.Slow] delays what the server says; [Proxy.Watch] looks at what passes and decides.
// [Proxy.Heal] ends every fault. The proxy keeps its port while it is cut, so no other process can take the port
// meanwhile.
package faultproxy

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds the connection to the server.
const dialTimeout = 30 * time.Second

type fault int

const (
	none fault = iota
	cut
	halfOpen
	stalled
)

// Proxy is a proxy in front of one server. Its methods may be called at any time.
type Proxy struct {
	server   string
	listener net.Listener
	all      sync.WaitGroup

	mu              sync.Mutex
	fault           fault
	changed         chan struct{} // closed when fault changes
	latency, jitter time.Duration
	up, down        func([]byte) Verdict
	pairs           map[*pair]bool
	accepted        int
	closed          bool
}

// New starts a proxy in front of the server at an address.
func New(server string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{server: server, listener: listener, changed: make(chan struct{}), pairs: map[*pair]bool{}}
	p.all.Go(p.accept)
	return p, nil
}

// Addr returns the address to connect to instead of the server's.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes the proxy and its connections and returns when none of its goroutines is left.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.drop()
	p.mu.Unlock()
	p.all.Wait()
}

// Cut closes all connections. New ones are accepted and closed at once, until Heal.
func (p *Proxy) Cut() { p.set(cut) }

// HalfOpen keeps connections open, and drops what either side says, until Heal closes them.
func (p *Proxy) HalfOpen() { p.set(halfOpen) }

// Stall reads nothing from either side any more, so that a write of much blocks, until Heal closes the connections.
func (p *Proxy) Stall() { p.set(stalled) }

// Slow delays what the server says by latency, and at most jitter more or less, until Heal.
func (p *Proxy) Slow(latency, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency, p.jitter = latency, jitter
}

// Verdict is what becomes of a piece of data.
type Verdict int

const (
	Pass  Verdict = iota // The data goes on.
	Close                // The connection is closed, and the data is lost.
	// The data is lost, and so is all that follows in its direction. The connection stays open until Heal.
	Hold
)

// Watch has up called with each piece of data from a client and down with each from the server, until Heal. A piece may
// hold several of the protocol's packets, or part of one. The functions are called at the same time for different
// connections.
func (p *Proxy) Watch(up, down func(data []byte) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
}

// Heal ends every fault. It closes connections from which data was lost.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == halfOpen || p.fault == stalled || p.up != nil {
		p.drop()
	}
	p.latency, p.jitter, p.up, p.down = 0, 0, nil, nil
	p.become(none)
}

// Accepted returns how many connections came since the last Cut.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == cut {
		p.accepted = 0
		p.drop()
	}
	p.become(f)
}

// become changes the fault. The caller has the lock.
func (p *Proxy) become(f fault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// drop closes all connections. The caller has the lock.
func (p *Proxy) drop() {
	for c := range p.pairs {
		c.close()
	}
	clear(p.pairs)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		refuse := p.fault == cut
		p.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		p.all.Go(func() { p.connect(client) })
	}
}

// reset closes a connection so that the other side sees an error and no end in order.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (p *Proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.server, dialTimeout)
	if err != nil {
		reset(client)
		return
	}
	c := &pair{proxy: p, client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault == cut {
		c.close()
		return
	}
	p.pairs[c] = true
	p.all.Go(func() { c.pipe(client, server, true) })
	p.all.Go(func() { c.pipe(server, client, false) })
}

// delay returns how long a piece of data waits.
func (p *Proxy) delay(up bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if up || p.latency == 0 {
		return 0
	}
	return max(0, p.latency+time.Duration((2*rand.Float64()-1)*float64(p.jitter)))
}

// pair is the two ends of one connection.
type pair struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{}
	once           sync.Once
	ended          atomic.Int32 // directions
}

// close may be called with the proxy's lock held, and more than once.
func (c *pair) close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// piece is data on its way.
type piece struct {
	data []byte
	at   time.Time // when it may go on
}

// queued bounds the pieces that wait in one direction of a connection.
const queued = 1024

// pipe carries what from says to to. When from ends, what is on its way goes on, and then the end goes on too.
func (c *pair) pipe(from, to net.Conn, up bool) {
	out := make(chan piece, queued)
	c.proxy.all.Go(func() { c.write(to, out) })
	defer close(out)
	buffer := make([]byte, 32<<10)
	for held := false; ; {
		n, err := from.Read(buffer)
		if err == io.EOF {
			return
		}
		if err != nil {
			c.close()
			return
		}
		data := buffer[:n]
		switch c.proxy.judge(c, data, up) {
		case Hold:
			held = true
		case Close:
			c.close()
			return
		}
		if held {
			continue
		}
		select {
		case out <- piece{slices.Clone(data), time.Now().Add(c.proxy.delay(up))}:
		case <-c.done:
			return
		}
	}
}

// judge applies the fault to a piece of data. While the proxy is stalled it does not return.
func (p *Proxy) judge(c *pair, data []byte, up bool) Verdict {
	for {
		p.mu.Lock()
		fault, changed, watch := p.fault, p.changed, p.down
		if up {
			watch = p.up
		}
		p.mu.Unlock()
		switch {
		case fault == stalled:
			select {
			case <-changed:
				continue
			case <-c.done:
				return Close
			}
		case fault == halfOpen:
			return Hold
		case watch != nil:
			return watch(data)
		}
		return Pass
	}
}

func (c *pair) write(to net.Conn, out <-chan piece) {
	defer c.end(to)
	for p := range out {
		if wait := time.Until(p.at); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-c.done:
				timer.Stop()
				return
			}
		}
		if _, err := to.Write(p.data); err != nil {
			c.close()
			return
		}
	}
}

// end passes on that one direction has ended. After both directions the connection is closed.
func (c *pair) end(to net.Conn) {
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	if c.ended.Add(1) < 2 {
		return
	}
	c.close()
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	delete(c.proxy.pairs, c)
}
