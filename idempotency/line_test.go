package idempotency_test

import (
	"database/sql"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// line is what a store has to its database, and what a case breaks: the network where there is one, the driver else.
type line interface {
	// cut ends what is connected and accepts no connection any more; mend connects again.
	cut()
	mend()
	// cutAtCommit cuts the next COMMIT's connection once, before the database has it or before its answer comes back.
	cutAtCommit(answer bool)
}

// over opens the cell's database over a line.
func (c *cell) over() (*sql.DB, line) {
	c.Helper()
	if c.says == "sqlite" {
		db, w := openWire(c, c.database, c.address)
		return db, &driverLine{w}
	}
	p := &proxy{conns: map[net.Conn]bool{}}
	address := c.address
	switch c.says {
	case "postgres":
		u, err := url.Parse(address)
		if err != nil {
			c.Fatal(err)
		}
		u.Host = p.listen(c, u.Host)
		address = u.String()
	case "mysql":
		config, err := mysql.ParseDSN(address)
		if err != nil {
			c.Fatal(err)
		}
		config.Addr = p.listen(c, config.Addr)
		address = config.FormatDSN()
	}
	return c.open(c, address), p
}

// driverLine is a file's.
type driverLine struct{ *wire }

func (l *driverLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDown = true
	for conn := range l.conns {
		_ = conn.cut()
	}
}

func (l *driverLine) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDown = false
}

func (l *driverLine) cutAtCommit(answer bool) {
	once := func(c *wireConn, statement string) error {
		if !isCommit(statement) {
			return nil
		}
		l.set(nil, nil)
		return c.cut()
	}
	if answer {
		l.set(nil, once)
		return
	}
	l.set(once, nil)
}

// proxy stands between a pool and a server. It speaks no protocol, but knows a COMMIT when it passes.
type proxy struct {
	to       string
	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]bool
	isCut    bool
	armed    bool         // for the next COMMIT
	answer   bool         // let it through, and cut the answer
	accepted atomic.Int64 // connections, since it was cut
	all      sync.WaitGroup
}

// listen returns the address that stands for the server's.
func (p *proxy) listen(t testing.TB, to string) string {
	t.Helper()
	p.to = to
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
		p.all.Wait()
	})
	return p.listener.Addr().String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		server, err := net.Dial("tcp", p.to)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			continue
		}
		pair := &pair{proxy: p, client: client, server: server}
		p.all.Go(pair.up)
		p.all.Go(pair.down)
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.isCut {
			_ = conn.Close()
			continue
		}
		p.conns[conn] = true
	}
	return !p.isCut
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	p.accepted.Store(0)
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

func (p *proxy) cutAtCommit(answer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.answer = true, answer
}

// pair is one connection's two ends.
type pair struct {
	*proxy
	client, server net.Conn
	mute           bool // the next answer is not for the client; guarded by the proxy's lock
}

func (c *pair) close() {
	_ = c.client.Close()
	_ = c.server.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, c.client)
	delete(c.conns, c.server)
}

// passes reports whether what the client says goes on to the server.
func (c *pair) passes(said []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed || !commits.Match(said) { // other packets may come with it, such as the close of a statement
		return true
	}
	c.armed = false
	c.mute = c.answer
	return c.answer
}

func (c *pair) up() {
	defer c.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buffer)
		if err != nil || !c.passes(buffer[:n]) {
			return
		}
		if _, err := c.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (c *pair) down() {
	defer c.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buffer)
		c.mu.Lock()
		mute := c.mute
		c.mu.Unlock()
		if mute && err == nil { // once the server has said everything, it has committed
			_ = c.server.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			continue
		}
		if err != nil {
			return
		}
		if _, err := c.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
