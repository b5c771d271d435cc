package wmsql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature P1: a refused position stays refused when the server's transaction ids have passed it, and so does one of
// another server whose ids have passed it before anybody looked. With RestartIfAhead every message comes.
func TestRefusalStays(t *testing.T) {
	for row := range 4 {
		running, moved := row%2 == 1, row > 1
		t.Run(fmt.Sprintf("running %t, another server %t", running, moved), func(t *testing.T) {
			b, want, fresh := on(t, databases.Postgres), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(want, running)
			if moved { // in one transaction, the table is as another server has it
				b.exec(`WITH moved AS (UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1',
					last_processed_transaction_id = (pg_current_xact_id()::text::bigint - 1)::text::xid8 RETURNING 1)
					INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata, transaction_id)
					SELECT 'new-' || i, 'x', '{}', '3' FROM generate_series(0, 4) i, moved`)
			} else {
				b.setAhead(200)
			}
			if running {
				b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
			} else {
				b.refuses("ahead")
			}
			b.until("the refusal is recorded", func() bool { return strings.HasPrefix(b.recorded(), "refused at ") })
			if moved {
				b.exec(`DELETE FROM ` + b.table(b.topic) + ` WHERE uuid = 'old-0'`)
				want = append(fresh, want[1:]...)
			} else {
				b.publish(fresh...)
				b.spend(300)
				b.publish("behind")
				want = append(append(want, fresh...), "behind")
			}
			if running {
				b.silent(messages)
			}
			b.refuses("the ids have passed the position")
			b.refuses("and again")
			testkit.NoError(t, sub.Close()) // it would take its turn in the group
			b.comes(b.consume(restart), want...)
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
