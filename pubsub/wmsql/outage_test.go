package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// oldTransactions returns how many transactions of the pool of own are more than a second old, in the server's view.
func (b *bench) oldTransactions() int {
	b.Helper()
	return b.transactions(b.sql(`SELECT count(*) FROM pg_stat_activity WHERE application_name = '`+b.topic+`' AND clock_timestamp() - xact_start > interval '1 second'`,
		`SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
		WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() AND t.trx_started < NOW() - INTERVAL 2 SECOND`)) // whole seconds
}

// Feature R12, promise P3: while the handler's downstream is away, or its calls time out, the server sees no transaction that lasts. Messages are requeued as often as it
// takes, and are neither counted nor dead-lettered. Their effects happen once when the downstream is back.
func TestOutageHoldsNoTransaction(t *testing.T) {
	down := map[string]func(context.Context) error{
		"refuses": func(context.Context) error { return classify.Away(errors.New("connection refused")) },
		"hangs": func(ctx context.Context) error { // as calls with a time-out of their own see it
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		},
	}
	for name, fail := range down {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, b *bench, s server) {
				own, _ := b.own(s)
				var ids []string
				for i := range 20 {
					ids = append(ids, fmt.Sprint("id-", i))
				}
				b.publish(ids...)
				var back atomic.Bool
				var calls atomic.Int32
				sub := own.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c), c.NackBackoff = 1, time.Hour })
				own.run(sub, func(msg *message.Message) ([]*message.Message, error) {
					if !back.Load() {
						calls.Add(1)
						if err := b.write(msg, "half"); err != nil {
							return nil, err
						}
						return nil, fail(msg.Context())
					}
					return b.whole(msg)
				}, func(c *spillway.Config) {
					c.Retry.Attempts = 6 // one more than it takes to see that nothing succeeds
					c.Breaker = &breaker.Config{Window: 50 * time.Millisecond, Probe: 50 * time.Millisecond, MaxProbe: 200 * time.Millisecond}
				})
				lasts := 0 // looks in a row: a machine that stands still makes one transaction old
				for end := time.Now().Add(4 * time.Second); time.Now().Before(end) || calls.Load() < 12; time.Sleep(150 * time.Millisecond) {
					if lasts++; b.oldTransactions() == 0 {
						lasts = 0
					}
					if lasts == 10 {
						t.Error("there are transactions that last for more than two seconds")
					}
				}
				if letters, left := b.letters(), b.backlog(b.topic, ""); len(letters) > 0 || left != len(ids) {
					t.Errorf("%d letters, and %d of %d messages left, in the outage", len(letters), left, len(ids))
				}
				t.Logf("%d calls of the downstream", calls.Load())
				back.Store(true)
				b.account(ids)
			})
		})
	}
}

// Feature R12: a handler that is stopped by hand takes nothing, and holds neither a transaction nor a connection, until it is let go.
func TestFreezeHoldsNoTransaction(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		own, transactions := b.own(s)
		guard, err := breaker.New(breaker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		guard.Open("billing", "a deploy")
		var handled deliveries
		sub := own.subscriber(func(c *wmsql.SubscriberConfig) { c.NackBackoff = time.Hour })
		stop := testkit.RunRouter(t, nil, func(router *message.Router) {
			router.AddMiddleware(guard.Middleware)
			router.AddConsumerHandler("billing", b.topic, sub, func(msg *message.Message) error { handled.add(msg.UUID); return nil })
		})
		defer stop()
		b.publish("a", "b", "c")
		still := 0
		b.until("nothing is taken any more", func() bool { // at first a message is read, and requeued
			time.Sleep(20 * time.Millisecond)
			if still++; transactions() > 0 || own.db.Stats().InUse > 0 {
				still = 0
			}
			return still == 10
		})
		if got := handled.get(); len(got) > 0 || b.backlog(b.topic, "") != 3 {
			t.Errorf("handled %v of a handler that is stopped", got)
		}
		guard.Close("billing")
		b.drained()
		if got := handled.get(); len(got) != 3 || got["a"] != 1 {
			t.Errorf("handled %v", got)
		}
	})
}
