package wmsql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature P1: a position that was refused stays refused when the server's transaction ids have passed it, while the
// subscription runs and when it is started again. With RestartIfAhead every message comes.
func TestRefusalStays(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			b, old, fresh := on(t, databases.Postgres), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(old, running)
			b.setAhead(200)
			if running {
				b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
			} else {
				b.refuses("ahead")
			}
			b.until("the refusal is recorded", func() bool { return strings.HasPrefix(b.recorded(), "refused at ") })
			b.publish(fresh...)
			b.spend(300)
			b.publish("behind")
			if running {
				b.silent(messages)
			}
			b.refuses("the ids have passed the position")
			b.refuses("and again")
			testkit.NoError(t, sub.Close()) // it would take its turn in the group
			b.comes(b.consume(restart), append(append(old, fresh...), "behind")...)
			b.drained()
			b.wantRecorded()
		})
	}
}

func (b *bench) wantRecorded() {
	b.Helper()
	got := b.recorded()
	testkit.Check(b, got != "" && !strings.HasPrefix(got, "refused"), "recorded is %q", got)
}

// Feature P1: on another server, whose transaction ids have passed the position before anybody looked, messages that
// would be passed over are evidence. The first consumer is not running, or it runs and loses its server.
func TestServerMoved(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			b, old, fresh := on(t, databases.Postgres), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(old, running)
			// In one transaction, the table is as another server has it once its ids have passed the position.
			b.exec(`WITH moved AS (UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1',
				last_processed_transaction_id = (pg_current_xact_id()::text::bigint - 1)::text::xid8 RETURNING 1)
				INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata, transaction_id)
				SELECT 'new-' || i, 'x', '{}', '3' FROM generate_series(0, 4) i, moved`)
			if running {
				b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
				b.silent(messages)
			}
			b.refuses("another server")
			b.exec(`DELETE FROM ` + b.table(b.topic) + ` WHERE uuid = 'old-0'`)
			b.refuses("and again")
			testkit.NoError(t, sub.Close()) // it would take its turn in the group
			b.comes(b.consume(restart), append(fresh, old[1:]...)...)
		})
	}
}

// Feature P1: a position that a person sets after a refusal is good.
func TestRefusalAnswered(t *testing.T) {
	b := on(t, databases.Postgres)
	b.handled([]string{"a", "b"}, false)
	b.setAhead(100_000)
	b.refuses("ahead")
	b.setPosition(`(offset_acked, last_processed_transaction_id) =
		(SELECT "offset", transaction_id FROM ` + b.table(b.topic) + ` WHERE uuid = 'a')`)
	b.handle("b")
	b.wantRecorded()
}
