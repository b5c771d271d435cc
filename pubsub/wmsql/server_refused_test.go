package wmsql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func (b *bench) refuses(what string) {
	b.Helper()
	if _, err := b.subscriber().Subscribe(b.Context(), b.topic); !errors.Is(err, wmsql.ErrPositionAhead) {
		b.Fatalf("%s: subscribed: %v", what, err)
	}
}

// handled handles messages, and returns a subscriber that has begun if it is running, and its log.
func (b *bench) handled(old []string, running bool) (*wmsql.Subscriber, <-chan *message.Message, *testkit.Log) {
	b.Helper()
	b.publish(old...)
	b.handle(old...)
	log := &testkit.Log{}
	sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Logger = log })
	if !running {
		return sub, nil, log
	}
	messages, err := sub.Subscribe(b.Context(), b.topic)
	if err != nil {
		b.Fatal(err)
	}
	return sub, messages, log
}

// Feature P1: a position that was refused stays refused when the server's transaction ids have passed it, while the
// subscription runs and when it is started again. With RestartIfAhead every message comes.
func TestRefusalStays(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			b, old, fresh := onPostgres(t), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(old, running)
			b.exec(`UPDATE ` + b.offsetsTable() + ` SET last_processed_transaction_id = (pg_current_xact_id()::text::bigint + 200)::text::xid8`)
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
			if err := sub.Close(); err != nil { // it would take its turn in the group
				t.Fatal(err)
			}
			b.comes(b.consume(func(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true }), append(append(old, fresh...), "behind")...)
			b.drained()
			if got := b.recorded(); got == "" || strings.HasPrefix(got, "refused") {
				t.Errorf("recorded is %q", got)
			}
		})
	}
}

func (b *bench) silent(messages <-chan *message.Message) {
	b.Helper()
	select {
	case msg := <-messages:
		b.Errorf("%s was delivered, and the messages before it never will be", msg.UUID)
	case <-time.After(300 * time.Millisecond):
	}
}

// Feature P1: on another server, whose transaction ids have passed the position before anybody looked, messages that
// would be passed over are evidence. The first consumer is not running, or it runs and loses its server.
func TestServerMoved(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			b, old, fresh := onPostgres(t), batchOf("old", 5), batchOf("new", 5)
			sub, messages, log := b.handled(old, running)
			// In one transaction, the table is as another server has it once its ids have passed the position.
			b.exec(`WITH moved AS (UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1', last_processed_transaction_id = (pg_current_xact_id()::text::bigint - 1)::text::xid8 RETURNING 1)
				INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata, transaction_id) SELECT 'new-' || i, 'x', '{}', '3' FROM generate_series(0, 4) i, moved`)
			if running {
				b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
				b.silent(messages)
			}
			b.refuses("another server")
			b.exec(`DELETE FROM ` + b.table(b.topic) + ` WHERE uuid = 'old-0'`)
			b.refuses("and again")
			if err := sub.Close(); err != nil { // it would take its turn in the group
				t.Fatal(err)
			}
			b.comes(b.consume(func(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true }), append(fresh, old[1:]...)...)
		})
	}
}

// Feature P1: a position that a person sets after a refusal is good.
func TestRefusalAnswered(t *testing.T) {
	b := onPostgres(t)
	b.publish("a", "b")
	b.handle("a", "b")
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET last_processed_transaction_id = (pg_current_xact_id()::text::bigint + 100000)::text::xid8`)
	b.refuses("ahead")
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET (offset_acked, last_processed_transaction_id) = (SELECT "offset", transaction_id FROM ` + b.table(b.topic) + ` WHERE uuid = 'a')`)
	b.handle("b")
	if got := b.recorded(); got == "" || strings.HasPrefix(got, "refused") {
		t.Errorf("recorded is %q", got)
	}
}
