package wmsql_test

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// A consumer with nothing to do looks without a lock: on PostgreSQL each lock uses up a transaction id, of which 10 a
// second from each consumer are a burden on the whole server.
func TestIdleLocksNothing(t *testing.T) {
	b := on(t, databases.Postgres) // which alone writes in the row who locked it
	ids := b.consume()
	b.publish("a")
	b.comes(ids, "a")
	locked := func() int { return b.ask(`SELECT xmax::text::bigint FROM ` + b.offsetsTable()) }
	before, since := locked(), time.Now()
	b.until("nobody locks the position any more", func() bool {
		if now := locked(); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond // 50 polls
	})
	b.publish("b")
	b.comes(ids, "b")
}
