package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
)

// late subscribes to a re-entry topic when it is let.
type late struct {
	message.Subscriber
	asked, let chan struct{}
	once       *sync.Once
}

func (l late) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if strings.HasSuffix(topic, ".retry") {
		l.once.Do(func() { close(l.asked) })
		<-l.let
	}
	return l.Subscriber.Subscribe(ctx, topic)
}

func (late) Close() error { return nil }

// Promise P1: what is due in the store when a router starts is published when its re-entry topic has a subscription,
// and not before: a pub/sub that keeps nothing for others would lose it.
func TestRelayAwaitsSubscriptions(t *testing.T) {
	b := newBench(t, false)
	store := delayStore(t, b.DB)
	testkit.NoError(t, delays.In(store).Put(t.Context(), "orders.billing.retry", message.NewMessage("kept", nil), 0))
	slow := late{b.Source, make(chan struct{}), make(chan struct{}), new(sync.Once)}
	ch := b.Channel(b.staged(store), func(c *spillway.Config) {
		c.Stages.Subscriber = func(string, string) (message.Subscriber, error) { return slow, nil }
	})
	go func() {
		<-slow.asked
		time.Sleep(300 * time.Millisecond) // in which a relay that does not wait has moved it, into nothing
		close(slow.let)
	}()
	stop := b.runStaged(ch, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
	defer stop()
	b.Eventually("it took effect", func() bool { return len(b.Effects()) == 1 })
}

// Features I9, R5: where the receiver has leases in place of transactions, a message that fails lets go of its key, and
// takes effect in its stage, once; a copy that comes meanwhile waits for its turn, in no stage and uncounted.
func TestStagesUnderLease(t *testing.T) {
	b := newBench(t, false)
	var requeue, staged atomic.Int32
	ch := b.Channel(b.staged(nil), func(c *spillway.Config) {
		c.Receiver = &idempotency.ReceiverConfig{Lease: 10 * time.Second,
			Hooks: idempotency.Hooks{OnRequeue: func(context.Context, idempotency.Key) { requeue.Add(1) }}}
		c.Stages.Hooks.OnStage = func(context.Context, stages.Waiting) { staged.Add(1) }
	})
	var runs, effects atomic.Int32
	held := make(chan struct{})
	stop := b.runStaged(ch, func(msg *message.Message) ([]*message.Message, error) {
		if runs.Add(1) == 1 {
			return nil, classify.Transient(errors.New("503"))
		}
		<-held
		effects.Add(1)
		return nil, nil
	})
	defer stop()
	b.Publish(message.NewMessage("1", nil))
	b.Eventually("it is handled in its stage", func() bool { return runs.Load() == 2 })
	b.Publish(message.NewMessage("1", nil))
	b.Eventually("the copy is put back", func() bool { return requeue.Load() > 2 })
	close(held)
	b.Eventually("the copy is absorbed", func() bool {
		before := requeue.Load()
		time.Sleep(200 * time.Millisecond)
		return requeue.Load() == before
	})
	if effects.Load() != 1 || runs.Load() != 2 || staged.Load() != 1 || len(b.Waiting()) != 0 {
		t.Errorf("%d effects of %d runs, %d times staged, %d letters", effects.Load(), runs.Load(), staged.Load(), len(b.Waiting()))
	}
}

// Promise P1: what waits in DB since Stages had their store there is named at the start of a channel that does not read
// it, with and without stage topics.
func TestRowsLeftAreReported(t *testing.T) {
	b := newBench(t, false)
	start := func(what string, want int, change ...func(*spillway.Config)) {
		t.Helper()
		log := &testkit.Log{}
		config := spillway.Config{DB: b.DB, Service: "shop", Logger: log}
		for _, f := range change {
			f(&config)
		}
		ch := testkit.Must(spillway.New(t.Context(), config))
		b.Run(ch.Attach, func(*message.Message) ([]*message.Message, error) { return nil, nil })()
		lines := log.Lines(watermill.ErrorLogLevel, "delay store of DB")
		testkit.Check(t, len(lines) == want && (want <= 0 || lines[0].Fields["stage_topic"] == "orders.billing.retry" &&
			lines[0].Fields["messages"] == 2), "%s: %v, want %d lines", what, lines, want)
		failed := log.Lines(watermill.ErrorLogLevel, "search")
		testkit.Check(t, len(failed) == 0, "%s: %v", what, failed)
	}
	start("before there is a table", 0)
	var tables int
	err := b.DB.QueryRow(`SELECT count(*) FROM sqlite_master WHERE name = 'spillway_delayed'`).Scan(&tables)
	testkit.Check(t, err == nil && tables == 0, "the search made a table: %d, %v", tables, err)
	store := delayStore(t, b.DB)
	for _, id := range []string{"1", "2"} {
		err := delays.In(store).Put(t.Context(), "orders.billing.retry", message.NewMessage(id, nil), time.Hour)
		testkit.Require(t, err == nil, "%v", err)
	}
	inTopics := func(c *spillway.Config) {
		c.Stages = &stages.Config{
			Publisher: b.Source, Stages: []stages.Stage{{Delay: time.Hour}},
			Subscriber: func(string, string) (message.Subscriber, error) { return shop.StaysOpen(b.Source), nil },
		}
	}
	service := hidden.Of(store).Service()
	of := func(name string) func(*spillway.Config) { return func(c *spillway.Config) { c.Service = name } }
	start("switched off", 1, of(service))
	start("back in topics", 1, of(service), inTopics)
	start("in DB", 0, of(service), inTopics, func(c *spillway.Config) { c.Stages.Store = delayStore(t, b.DB) })
	start("another service", 0, of("other"))
}

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
	testkit.Says(t, testkit.Starts(t, router), "Stages.Plugin")
}
