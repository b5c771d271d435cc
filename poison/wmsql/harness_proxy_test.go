package wmsql_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"

	"github.com/watermill-spillway/spillway/internal/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/postgres/postgrestest"
)

// server is the server of a bench, which a test may harm.
type server struct {
	name, address string // as package services knows it
	host          string
	through       func(host string) (address string)
}

// onServers is onEach with the address of the database.
func onServers(t *testing.T, test func(t *testing.T, b *bench, s server)) {
	t.Run("postgres", func(t *testing.T) {
		address := postgrestest.Schema(t)
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address) }), server{"postgres", address, at.Host, func(host string) string {
			other := *at
			other.Host = host
			return other.String()
		}})
	})
	t.Run("mariadb", func(t *testing.T) {
		dsn := mysqltest.Database(t)
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) }), server{"mariadb", dsn, config.Addr, func(host string) string {
			other := config.Clone()
			other.Addr = host
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
	through.db = openAt(b, s.name, s.through(p.Listen))
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

// cutting is how the toxics below treat the next COMMIT: it arrives, and its answer does not, or neither does.
var cutting atomic.Int32

const (
	notCutting int32 = iota
	cutRequest
	cutAnswer
	holdAnswer // for ever
	cutNow     // the COMMIT is through: what the server says next is its answer
	holdNow
)

func init() {
	toxics.Register("commit", new(commitToxic))
	toxics.Register("answer", new(answerToxic))
}

// watchCommits puts the toxics in place.
func (p *proxy) watchCommits() {
	p.toxic(`{"name":"commit","type":"commit","stream":"upstream","attributes":{}}`)
	p.toxic(`{"name":"answer","type":"answer","stream":"downstream","attributes":{}}`)
}

type commitToxic struct{}

func (*commitToxic) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if said := bytes.ToLower(chunk.Data); bytes.Contains(said, []byte("commit")) && !bytes.Contains(said, []byte("read committed")) {
				if cutting.CompareAndSwap(cutRequest, notCutting) {
					stub.Close()
					return
				}
				cutting.CompareAndSwap(cutAnswer, cutNow)
				cutting.CompareAndSwap(holdAnswer, holdNow)
			}
			stub.Output <- chunk
		}
	}
}

type answerToxic struct{}

func (*answerToxic) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil || cutting.CompareAndSwap(cutNow, notCutting) {
				stub.Close()
				return
			}
			if cutting.CompareAndSwap(holdNow, notCutting) {
				<-stub.Interrupt
				return
			}
			stub.Output <- chunk
		}
	}
}

func opening(dsn string) func(testing.TB) *sql.DB {
	return func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) }
}
