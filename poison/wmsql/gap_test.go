package wmsql_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/mysql/mysqltest"
)

// load publishes from several sides at once while messages are taken, and returns how often each was delivered, from the
// first that is taken until nothing has come for a while.
func (b *bench) load(sub message.Subscriber, publishers, each int) map[string]int {
	b.Helper()
	messages, err := sub.Subscribe(b.Context(), b.topic)
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				if err := b.pub.Publish(b.topic, message.NewMessage(fmt.Sprintf("%d-%d", p, i), []byte("{}"))); err != nil {
					b.Error(err)
				}
			}
		})
	}
	published := make(chan struct{})
	go func() { all.Wait(); close(published) }()
	seen := map[string]int{}
	for {
		select {
		case msg := <-messages:
			seen[msg.UUID]++
			msg.Ack()
			continue
		case <-time.After(2 * time.Second):
		}
		select {
		case <-published:
			return seen
		default:
		}
	}
}

func TestStockLosesRows(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, opening(dsn))
	stock, err := wsql.NewSubscriber(b.db, wsql.SubscriberConfig{SchemaAdapter: wsql.DefaultMySQLSchema{}, OffsetsAdapter: wsql.DefaultMySQLOffsetsAdapter{}, PollInterval: time.Millisecond, ResendInterval: time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	seen := b.load(stock, 8, 1500)
	t.Logf("lost %d of %d in %s", 8*1500-len(seen), 8*1500, time.Since(begun))
	_ = stock.Close()
}
func TestOursLosesNone(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, opening(dsn))
	begun := time.Now()
	seen := b.load(b.subscriber(), 8, 1500)
	t.Logf("lost %d of %d in %s", 8*1500-len(seen), 8*1500, time.Since(begun))
}
