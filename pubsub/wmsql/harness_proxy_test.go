package wmsql_test

import (
	"database/sql"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/faultproxy"
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
func (b *bench) over(s server) (*bench, *faultproxy.Proxy) {
	b.Helper()
	p, err := faultproxy.New(s.host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	through := *b
	through.db = openAt(b, s.name, s.to(p.Addr(), ""))
	through.pub = through.publisher()
	return &through, p
}
