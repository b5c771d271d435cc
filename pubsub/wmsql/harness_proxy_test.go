package wmsql_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

// server is the server of a bench, which a test may harm.
type server struct {
	name, address string // as package services knows it
	host          string
	to            func(host, user string) (address string) // each if it is given; the password is the user's name
}

// onServers is onEach with the address of the database.
func onServers(t *testing.T, test func(t *testing.T, b *bench, s server)) {
	t.Run("postgres", func(t *testing.T) {
		address := postgrestest.Schema(t)
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address) }), server{"postgres", address, at.Host, func(host, user string) string {
			other := *at
			if host != "" {
				other.Host = host
			}
			if user != "" {
				other.User = url.UserPassword(user, user)
			}
			return other.String()
		}})
	})
	t.Run("mariadb", func(t *testing.T) {
		dsn := mysqltest.Database(t)
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) }), server{"mariadb", dsn, config.Addr, func(host, user string) string {
			other := config.Clone()
			if host != "" {
				other.Addr = host
			}
			if user != "" {
				other.User, other.Passwd = user, user
			}
			return other.FormatDSN()
		}})
	})
}

// openAt opens a pool as a process of its own would.
func openAt(t testing.TB, name, address string) *sql.DB {
	if name == "postgres" {
		return postgrestest.Open(t, address)
	}
	return mysqltest.Open(t, address)
}

// over is the bench for handlers whose pool goes through a proxy; b itself still sees the database directly.
func (b *bench) over(s server) (*bench, *proxy) {
	b.Helper()
	p := &proxy{toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), b.Name(), "127.0.0.1:0", s.host), b}
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Stop)
	through := *b
	through.db = openAt(b, s.name, s.to(p.Listen, ""))
	through.pub = through.publisher()
	return &through, p
}

type proxy struct {
	*toxiproxy.Proxy
	b *bench
}

func (p *proxy) toxic(json string) {
	p.b.Helper()
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		p.b.Fatal(err)
	}
}

// halfOpen lets nothing through any more in either direction, without a word to anybody. heal closes what is stuck and
// lets new connections through.
func (p *proxy) halfOpen() {
	p.toxic(`{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
	p.toxic(`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

func (p *proxy) heal() { p.Toxics.ResetToxics(context.Background()) }
