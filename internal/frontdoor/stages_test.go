package frontdoor_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

func delayStore(t testing.TB, db *sql.DB) *delay.Store {
	return testkit.Must(delay.NewStore(t.Context(), db, "shop"))
}

// staged configures stages on the bench's own pub/sub.
func (b *bench) staged(store *delay.Store) func(*spillway.Config) {
	return func(c *spillway.Config) {
		c.Retry.Attempts = 0
		c.Stages = &stages.Config{
			Publisher:  b.Source,
			Subscriber: func(string, string) (message.Subscriber, error) { return shop.StaysOpen(b.Source), nil },
			Stages:     stages.Delays(20*time.Millisecond, 50*time.Millisecond),
			Store:      store,
		}
	}
}

// runStaged is bench.run with stages.
func (b *bench) runStaged(ch *spillway.Channel, handle message.HandlerFunc) (stop func()) {
	b.T.Helper()
	return testkit.RunRouter(b.T, watermill.NopLogger{}, func(router *message.Router) {
		ch.Attach(router)
		if _, err := ch.Stages().AddHandler(router, "billing", "orders", shop.StaysOpen(b.Source), "invoices", b.Outs, handle); err != nil {
			b.T.Fatal(err)
		}
	})
}

// Feature I8: keys must outlast the stages too.
func TestPurgeKnowsTheStages(t *testing.T) {
	b := newBench(t, false)
	for total, warned := range map[time.Duration]bool{time.Minute: false, 2 * time.Hour: true} {
		log := watermill.NewCaptureLogger()
		b.Channel(b.staged(nil), func(c *spillway.Config) {
			c.Logger = log
			c.Stages.Stages = stages.Delays(total)
			c.Purge = &idempotency.PurgeConfig{Retention: 2 * time.Hour, Horizon: time.Hour}
		})
		got := len(log.Captured()[watermill.ErrorLogLevel]) > 0
		testkit.Check(t, got == warned, "stages of %s: warned %t", total, got)
	}
}

// With a Store and without the plugin nothing would ever move, and that is an error of the start.
func TestStoreWantsThePlugin(t *testing.T) {
	b := newBench(t, false)
	ch := b.Channel(b.staged(delayStore(t, b.DB)))
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	added := testkit.Must(ch.Stages().AddConsumerHandler(router, "billing", "orders", shop.StaysOpen(b.Source),
		func(*message.Message) error { return nil }))
	added.AddMiddleware(ch.Middleware)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	testkit.Says(t, router.Run(ctx), "Stages.Plugin")
}
