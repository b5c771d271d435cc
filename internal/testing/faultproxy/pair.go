package faultproxy

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

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
