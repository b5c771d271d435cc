package wmsql_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// collect acks what comes on channels, and counts by id, until n messages have come.
func collect(t *testing.T, n int, channels ...<-chan *message.Message) map[string]int {
	t.Helper()
	counts, mu := map[string]int{}, sync.Mutex{}
	done := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	for _, messages := range channels {
		all.Go(func() {
			for {
				select {
				case msg := <-messages:
					mu.Lock()
					counts[msg.UUID]++
					if len(counts) == n {
						once.Do(func() { close(done) })
					}
					mu.Unlock()
					msg.Ack()
				case <-done:
					return
				case <-time.After(patience):
					t.Errorf("only %d messages came", len(counts))
					return
				}
			}
		})
	}
	all.Wait()
	return counts
}

// It takes the place of watermill-sql's subscriber and is taken back: each message comes once, in order.
func TestTakesTheirPlace(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var want, got []string
		for i := range 120 {
			want = append(want, fmt.Sprint(i))
		}
		b.publish(want...)
		take := func(sub message.Subscriber, n int) {
			t.Helper()
			messages := b.messages(sub)
			for range n {
				select {
				case msg := <-messages:
					got = append(got, msg.UUID)
					msg.Ack()
				case <-time.After(patience):
					t.Fatalf("no more than %d", len(got))
				}
			}
			left := 120 - len(got)
			if _, ours := sub.(*wmsql.Subscriber); !ours { // whose Close may forget what was acked just now
				b.until("it is acknowledged", func() bool { return b.backlog(b.topic, "billing") == left })
			}
			if err := sub.Close(); err != nil {
				t.Fatal(err)
			}
			if n := b.backlog(b.topic, "billing"); n != left {
				t.Fatalf("%d are left, and not %d", n, left)
			}
		}
		schema := b.stockSchema()
		if s, ok := schema.(wsql.DefaultPostgreSQLSchema); ok { // their batch commits as one
			s.SubscribeBatchSize = 10
			schema = s
		} else if s, ok := schema.(wsql.DefaultMySQLSchema); ok {
			s.SubscribeBatchSize = 10
			schema = s
		}
		stock := wsql.SubscriberConfig{ConsumerGroup: "billing", SchemaAdapter: schema, PollInterval: 10 * time.Millisecond}
		ours := func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "billing" }
		take(b.stockSubscriber(stock), 40)
		take(b.subscriber(ours), 35)
		take(b.subscriber(ours, func(c *wmsql.SubscriberConfig) { c.Schema = b.embedded() }), 5)
		take(b.stockSubscriber(stock), 20)
		take(b.subscriber(ours), 20)
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// Messages of transactions that ran at the same time come in the order of their transactions, whatever their numbers
// are: who compares numbers alone passes over those of a later transaction with lower numbers.
func TestInterleavedTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("there are no transactions in the table")
		}
		first, err := b.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = first.Rollback() }()
		if _, err := first.Exec(`SELECT pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
		b.publish("low number")
		query, err := b.stockSchema().InsertQuery(b.topic, message.Messages{message.NewMessage("high number", nil)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Exec(query.Query, query.Args...); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Batch = 1 })
		messages := b.messages(sub)
		got := collect(t, 2, messages)
		b.until("both are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
		if got["low number"] != 1 || got["high number"] != 1 {
			t.Errorf("%v", got)
		}
	})
}
