package wmsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A consumer with nothing to do looks without a lock: on PostgreSQL each lock uses up a transaction id, of which 10 a
// second from each consumer are a burden on the whole server.
func TestIdleLocksNothing(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("only PostgreSQL writes in the row who locked it")
		}
		ids := b.consume()
		b.publish("a")
		b.comes(ids, "a")
		locked := func() (by string) {
			if err := b.db.QueryRow(`SELECT xmax FROM "watermill_offsets_` + b.topic + `"`).Scan(&by); err != nil {
				t.Fatal(err)
			}
			return by
		}
		before, since := locked(), time.Now()
		b.until("nobody locks the position any more", func() bool {
			if now := locked(); now != before {
				before, since = now, time.Now()
			}
			return time.Since(since) > 500*time.Millisecond // 50 polls
		})
		b.publish("b")
		b.comes(ids, "b")
	})
}

// A pool that can make no connection is tried again with waits, whatever its error is.
func TestNoConnectionWaits(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		connector, err := b.db.Driver().(driver.DriverContext).OpenConnector(s.address)
		if err != nil {
			t.Fatal(err)
		}
		down := &outage{Connector: connector}
		db := sql.OpenDB(down)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(0) // each transaction connects anew
		through := *b
		through.db = db
		ids := through.consume(func(c *wmsql.SubscriberConfig) { c.PollInterval = time.Millisecond })
		b.publish("a")
		b.comes(ids, "a")
		down.on.Store(true)
		begun := time.Now()
		time.Sleep(500 * time.Millisecond)
		b.until("a connection is tried", func() bool { return down.refused.Load() > 0 })
		if n, took := down.refused.Load(), time.Since(begun); float64(n) > 200*took.Seconds() {
			t.Errorf("%d connections were tried in %s", n, took)
		}
		down.on.Store(false)
		b.publish("b")
		b.comes(ids, "b")
	})
}

// outage is a connector that makes no connection while it is on.
type outage struct {
	driver.Connector
	on      atomic.Bool
	refused atomic.Int32
}

func (o *outage) Connect(ctx context.Context) (driver.Conn, error) {
	if o.on.Load() {
		o.refused.Add(1)
		return nil, driver.ErrBadConn
	}
	return o.Connector.Connect(ctx)
}
