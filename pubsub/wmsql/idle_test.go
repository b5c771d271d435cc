package wmsql_test

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// An idle consumer looks without a lock: each would use up a transaction id of the whole server.
func TestIdleLocksNothing(t *testing.T) {
	b := on(t, databases.Postgres) // which alone writes in the row who locked it
	ids := b.consume()
	b.publish("a")
	b.comes(ids, "a")
	locked := func() int { return b.ask(`SELECT xmax::text::bigint FROM ` + b.offsetsTable()) }
	before, since := locked(), time.Now()
	b.until("no transaction locks the position any more", func() bool {
		if now := locked(); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond // 50 polls
	})
	b.publish("b")
	b.comes(ids, "b")
}
