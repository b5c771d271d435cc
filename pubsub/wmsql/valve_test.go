package wmsql_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// own is the bench with a pool whose transactions the server can count.
func (b *bench) own() (own *bench, transactions func() int) {
	b.Helper()
	address := b.address
	if b.isPostgres() {
		address += "&application_name=" + b.topic
	}
	return b.over(b.kind.Open(b, address)), func() int {
		if b.isPostgres() {
			return b.ask(`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL`,
				b.topic)
		}
		// InnoDB shows an old list to who asks within 100 ms after another.
		innoDBLists.Lock()
		defer innoDBLists.Unlock()
		time.Sleep(150 * time.Millisecond)
		return b.ask(`SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p
			ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()`)
	}
}

var innoDBLists sync.Mutex

// Feature R12: while the valve is shut there is no transaction. What was acked is committed, the rest left for later.
func TestShutValveHoldsNoTransaction(t *testing.T) {
	for _, acks := range []bool{false, true} {
		t.Run(fmt.Sprintf("acked %t", acks), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				own, transactions := b.own()
				b.publish("a", "b", "c")
				messages := b.messages(own.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.NackBackoff(c) = time.Hour }))
				b.receive(messages, "a").Ack()
				msg := b.receive(messages, "b")
				b.until("the server sees the transaction", func() bool { return transactions() == 1 })
				reopen, left := make(chan struct{}), []string{"b", "c"}
				gate.Of(msg.Context()).Shut(reopen)
				if acks {
					left = left[1:]
					msg.Ack()
				} else {
					msg.Nack()
				}
				b.until("what was acked is committed, and nothing comes", func() bool {
					select {
					case msg := <-messages:
						t.Fatalf("%s came through a shut valve", msg.UUID)
					default:
					}
					return b.backlog(b.topic, "") == len(left)
				})
				b.until("there is no transaction", func() bool { return transactions() == 0 && own.db.Stats().InUse == 0 })
				for range 10 {
					time.Sleep(20 * time.Millisecond) // two of the subscription's polls
					n, used := transactions(), own.db.Stats().InUse
					testkit.Require(t, n == 0 && used == 0 && !b.held(),
						"%d transactions, and %d connections are used, while the valve is shut", n, used)
				}
				close(reopen)
				for _, id := range left {
					b.receive(messages, id).Ack()
				}
				b.drained()
			})
		})
	}
}

// Feature R12: a message that is requeued because of an outage is not counted, however often, and however late.
func TestRequeuedIsNotCounted(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub := b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) {
			*wmsql.NackBackoff(c), *wmsql.MaxDeliveries(c) = time.Hour, 1
			c.AckDeadline, *wmsql.SettleGrace(c) = 200*time.Millisecond, time.Minute
		})
		b.publish("a", "b")
		messages := b.messages(sub)
		for i := range 20 {
			msg := b.receive(messages, "a")
			if i%4 == 0 {
				<-msg.Context().Done() // its ack deadline
			}
			reopen := make(chan struct{})
			gate.Of(msg.Context()).Shut(reopen)
			msg.Nack()
			time.AfterFunc(time.Duration(i)*time.Millisecond, func() { close(reopen) })
		}
		msg := b.receive(messages, "a")
		testkit.Check(t, len(msg.Metadata) == 0, "the message is marked: %v", msg.Metadata)
		msg.Ack()
		b.receive(messages, "b").Ack()
		b.drained()
	})
}

// The first delivery after an outage shows nothing of its message if it hangs. A message that hangs again is counted.
func TestHangingProbeIsNotCounted(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		own, _ := b.own()
		sub := own.subscriber(func(c *wmsql.SubscriberConfig) {
			*wmsql.MaxDeliveries(c), c.AckDeadline, *wmsql.SettleGrace(c) = 1, 100*time.Millisecond, 100*time.Millisecond
		})
		b.publish("a")
		messages := b.messages(sub)
		reopen := make(chan struct{})
		msg := b.receive(messages, "a")
		gate.Of(msg.Context()).Shut(reopen)
		msg.Nack()
		b.until("the subscription waits at its valve", func() bool { return own.db.Stats().InUse == 0 })
		close(reopen)
		for _, marked := range []bool{false, false, true} { // nothing is done with the first two
			msg := b.receive(messages, "a")
			testkit.Require(t, !(len(msg.Metadata) > 0 != marked), "metadata %v, want a mark: %t", msg.Metadata, marked)
			if marked {
				msg.Ack()
			}
		}
		b.drained()
	})
}

// Close ends a subscription that waits at its valve.
func TestCloseAtShutValve(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub := b.subscriber()
		b.publish("a")
		messages := b.messages(sub)
		msg := b.receive(messages, "a")
		gate.Of(msg.Context()).Shut(make(chan struct{}))
		msg.Nack()
		testkit.Within(t, "Close", func() { testkit.Is(t, sub.Close(), nil) })
		_, open := <-messages
		testkit.Check(t, !open, "a message came after Close")
		b.receive(b.messages(b.subscriber()), "a").Ack()
	})
}
