package idempotency_test

import (
	"database/sql"
	"net/url"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
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
		db, w := wire.Open(c, c.driver, c.address)
		return db, &driverLine{w}
	}
	address := c.address
	var line proxyLine
	through := func(host string) string {
		p := testkit.Must(faultproxy.New(host))
		c.Cleanup(p.Close)
		line.Proxy = p
		return p.Addr()
	}
	switch c.says {
	case "postgres":
		u := testkit.Must(url.Parse(address))
		u.Host = through(u.Host)
		address = u.String()
	case "mysql":
		config := testkit.Must(mysql.ParseDSN(address))
		config.Addr = through(config.Addr)
		address = config.FormatDSN()
	}
	return c.open(c, address), line
}

// driverLine is a file's.
type driverLine struct{ *wire.Wire }

func (l *driverLine) cut()  { l.Cut() }
func (l *driverLine) mend() { l.Mend() }

func (l *driverLine) cutAtCommit(answer bool) {
	once := func(c *wire.Conn, statement string) error {
		if !wire.IsCommit(statement) {
			return nil
		}
		l.Set(nil, nil)
		return c.Cut()
	}
	if answer {
		l.Set(nil, once)
		return
	}
	l.Set(once, nil)
}

// proxyLine is a server's. The proxy speaks no protocol, but knows a COMMIT when it passes.
type proxyLine struct{ *faultproxy.Proxy }

func (l proxyLine) cut()  { l.Cut() }
func (l proxyLine) mend() { l.Heal() }

func (l proxyLine) cutAtCommit(answer bool) {
	var passed atomic.Bool // the COMMIT: what the server says next is its answer
	l.Watch(func(said []byte) faultproxy.Verdict {
		if !wire.IsCommit(string(said)) { // other packets may come with it, such as the close of a statement
			return faultproxy.Pass
		}
		if answer {
			passed.Store(true)
			return faultproxy.Pass
		}
		l.Watch(nil, nil)
		return faultproxy.Close
	}, func([]byte) faultproxy.Verdict {
		if !passed.Load() {
			return faultproxy.Pass
		}
		l.Watch(nil, nil)
		return faultproxy.Close
	})
}
