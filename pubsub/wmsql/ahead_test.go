package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func (b *bench) offsetsTable() string {
	return b.sql(wsql.DefaultPostgreSQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic), wsql.DefaultMySQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic))
}

// beginAgain lets the numbers begin again, as a restored dump does on PostgreSQL and TRUNCATE does on MariaDB, and
// publishes n messages at once. It returns the ids of all messages that are in the table.
func (b *bench) beginAgain(n int) (ids []string) {
	b.Helper()
	if b.isPostgres() {
		// To a new server, ids of the old one are far ahead.
		const ahead = `(((%[1]s)::text::bigint + 1000000)::text::xid8)`
		b.exec(`UPDATE ` + b.table(b.topic) + ` SET transaction_id = ` + fmt.Sprintf(ahead, "transaction_id"))
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET last_processed_transaction_id = ` + fmt.Sprintf(ahead, "last_processed_transaction_id"))
		b.each(b.topic, func(msg *message.Message) { ids = append(ids, msg.UUID) })
	} else {
		b.exec(`TRUNCATE TABLE ` + b.table(b.topic))
	}
	batch := []*message.Message{}
	for i := range n {
		batch = append(batch, message.NewMessage(fmt.Sprintf("new-%d", i), nil))
		ids = append(ids, batch[i].UUID)
	}
	if err := b.pub.Publish(b.topic, batch...); err != nil {
		b.Fatal(err)
	}
	return ids
}

// Feature P1: a position that cannot be of this table is refused when it is subscribed to and while the subscription
// runs, however many messages are in the table by then. None is passed over: with RestartIfAhead all of them come.
func TestPositionAhead(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for _, n := range []int{0, 5, 25} {
			for _, running := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d, running %t", n, running), func(t *testing.T) { //nolint
					b := *b
					b.T = t
					(&b).ahead(n, running)
				})
			}
		}
	})
}

func (b *bench) ahead(n int, running bool) {
	b.topic += fmt.Sprintf(".%d.%t", n, running)
	if err := b.subscriber().SubscribeInitialize(b.topic); err != nil {
		b.Fatal(err)
	}
	var old []string
	for i := range 20 {
		old = append(old, fmt.Sprintf("old-%d", i))
	}
	b.publish(old...)
	log := &testkit.Log{}
	logged := func(c *wmsql.SubscriberConfig) { c.Logger = log }
	sub := b.subscriber(logged)
	messages := b.messages(sub)
	for range old {
		(<-messages).Ack()
	}
	b.drained()
	if !running {
		if err := sub.Close(); err != nil {
			b.Fatal(err)
		}
	}
	ids := b.beginAgain(n)
	if running {
		b.until("the error is logged", func() bool { return log.Is(wmsql.ErrPositionAhead) })
		select {
		case msg := <-messages:
			b.Errorf("%s was delivered, and the messages before it never will be", msg.UUID)
		default:
		}
		if err := sub.Close(); err != nil {
			b.Fatal(err)
		}
	}
	_, err := b.subscriber().Subscribe(b.Context(), b.topic)
	if !errors.Is(err, wmsql.ErrPositionAhead) || !strings.Contains(fmt.Sprint(err), "RestartIfAhead") {
		b.Errorf("subscribed: %v", err)
	}
	got := b.consume(func(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true })
	b.publish("last")
	found := map[string]int{}
	for range append(ids, "last") {
		select {
		case id := <-got:
			found[id]++
		case <-time.After(patience):
			b.Fatalf("only %d of %d came", len(found), len(ids)+1)
		}
	}
	for _, id := range append(ids, "last") {
		if found[id] != 1 {
			b.Errorf("%s came %d times", id, found[id])
		}
	}
	b.drained()
	if _, err := b.subscriber().Subscribe(b.Context(), b.topic); err != nil {
		b.Errorf("subscribed again: %v", err)
	}
}

// A position is good where rows behind it are gone, or an operator has moved it, or watermill-sql's subscriber wrote
// it.
func TestPositionIsGood(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		log := &testkit.Log{}
		ids := b.consume(func(c *wmsql.SubscriberConfig) { c.Logger = log })
		check := func(what string) {
			t.Helper()
			if log.Is(wmsql.ErrPositionAhead) {
				t.Errorf("%s: the running subscription refuses", what)
			}
			sub := b.subscriber()
			if _, err := sub.Subscribe(t.Context(), b.topic); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
		}
		check("nothing was published")
		b.publish("a", "b", "c", "d")
		b.comes(ids, "a", "b", "c", "d")
		b.drained()
		check("all was handled")
		b.exec(`DELETE FROM ` + b.table(b.topic) + ` WHERE uuid = 'd'`)
		check("the row of the position is gone")
		b.exec(`DELETE FROM ` + b.table(b.topic))
		b.still(ids, 200*time.Millisecond)
		check("all rows are gone")
		if !b.isPostgres() {
			b.exec(`SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_TABLE_OPTIONS')`) // of some connections
			check("the next number is not shown")
		}
		b.publish("e", "f")
		b.comes(ids, "e", "f")
		b.drained()
		check("new ones have come")
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET offset_acked = offset_acked - 1`)
		b.comes(ids, "f")
		b.drained()
		check("the position was set back")
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET offset_acked = offset_acked` + b.sql(``, `, offset_consumed = offset_acked`))
		check("watermill-sql wrote the position")
		b.publish("g")
		b.comes(ids, "g")
	})
}

// Feature P1: of a restored table whose messages have transaction ids that the server has yet to give out, the position
// may look good: the messages would wait for a long time, without a word.
func TestMessagesAhead(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("only PostgreSQL has transaction ids")
		}
		b.publish("a", "b", "c")
		b.exec(`UPDATE ` + b.table(b.topic) + ` SET transaction_id = ((transaction_id::text::bigint + 1000000)::text::xid8) WHERE uuid <> 'a'`)
		if _, err := b.subscriber().Subscribe(context.Background(), b.topic); !errors.Is(err, wmsql.ErrPositionAhead) {
			t.Errorf("subscribed: %v", err)
		}
		b.comes(b.consume(func(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true }), "a", "b", "c")
	})
}
