package prom_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// everything is a service in which each event that is counted happened, and has a campaign.
func everything(t *testing.T, registry prometheus.Registerer) (campaign string) {
	t.Helper()
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry}))
	metrics.Wait(time.Minute)
	quiet := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { _ = quiet.Close() })
	db := open(t)
	config := spillway.Config{
		DB: db, Receiver: &idempotency.ReceiverConfig{}, CrashLimit: &crashlimit.Config{}, Breaker: &breaker.Config{},
		Purge:     &idempotency.PurgeConfig{Retention: 30 * 24 * time.Hour},
		Retention: &letters.RetentionConfig{Rules: []letters.RetentionRule{{Keep: true}}},
		Stages: &stages.Config{
			Store: delayStore(t, db), Publisher: nowhere{},
			Subscriber: func(string, string) (message.Subscriber, error) { return quiet, nil },
		},
	}
	testkit.NoError(t, metrics.Observe(&config))
	channel := testkit.Must(spillway.New(t.Context(), config))
	all := testkit.Must(campaigns.New(t.Context(), channel.Letters(), campaigns.Config{Allow: []string{"orders"}}))
	park(t, db)
	testkit.NoError(t, metrics.Watch(t.Context(), channel, all))
	happen(t, &config, metrics.Redrives(redrive.Hooks{}))
	wait(t, channel, quiet)
	return stop(t, channel, all)
}

// happen calls the hooks, as the parts do.
func happen(t *testing.T, config *spillway.Config, hooks redrive.Hooks) {
	ctx, boom := t.Context(), errors.New("boom")
	var l poison.Letter
	l.Origin.Topic, l.Origin.Handler, l.Failure.Class, l.Failure.Reason, l.Redrive.Count = "orders", "billing", classify.ClassPermanent, "gone", 1
	config.Retry.Hooks.OnAttempt(ctx, middleware.Attempt{Topic: "orders", Handler: "billing"})
	config.Retry.Hooks.OnRetry(ctx, middleware.Attempt{Topic: "orders", Handler: "billing"}, 0)
	config.Retry.Hooks.OnBudgetSpent(ctx, middleware.BudgetSpent{Traffic: middleware.TrafficLive, ToStage: true})
	config.Stages.Hooks.OnStage(ctx, stages.Waiting{Topic: "orders", Handler: "billing", Stage: 1})
	config.Stages.Hooks.OnReentry(ctx, stages.Reentry{Topic: "orders", Handler: "billing", Stage: 1, Late: 100_000 * time.Hour}) // of a forged time
	config.Queue.Hooks.OnDeadLetter(ctx, l)
	config.Queue.Hooks.OnDiscard(ctx, l)
	config.Queue.Hooks.OnPublishError(ctx, l, boom)
	config.Queue.Hooks.OnUnplaced(ctx, l, boom)
	config.Outputs.OnOutputError(ctx, boom)
	config.CrashLimit.Hooks.OnExceeded(ctx, crashlimit.Unfinished{Consumer: "billing"})
	config.CrashLimit.Hooks.OnUnfinished(ctx, crashlimit.Unfinished{Consumer: "billing"})
	key := idempotency.Key{Consumer: "shop/billing"}
	config.Receiver.Hooks.OnApplied(ctx, key)
	config.Receiver.Hooks.OnDuplicate(ctx, key)
	config.Receiver.Hooks.OnRequeue(ctx, key)
	config.Receiver.Hooks.OnLeaseLost(ctx, key)
	config.Receiver.Hooks.OnStale(ctx, key, 1, 2)
	config.Breaker.Hooks.OnChange(breaker.Change{Handler: "billing", To: circuit.Open})
	config.Breaker.Hooks.OnWaited(chain.WithHandler(ctx, "billing"), time.Second, false)
	config.Purge.OnRun(ctx, 3, nil)
	config.Purge.OnRun(ctx, 0, boom)
	config.Retention.OnRun(ctx, 4, nil)
	config.Retention.OnRun(ctx, 0, boom)
	hooks.OnRedrive(ctx, l, "orders")
	hooks.OnRefused(ctx, l, "orders")
	hooks.OnQuarantine(ctx, l)
	hooks.OnParked(ctx, l, boom)
	hooks.OnPublishError(ctx, l, boom)
}

// wait puts messages into the delay store: one of a handler of this process, and two of another's.
func wait(t *testing.T, channel *spillway.Channel, sub message.Subscriber) {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	handle := func(*message.Message) error { return nil }
	testkit.Must(channel.Stages().AddConsumerHandler(router, "billing", "orders", sub, handle))
	for id, topic := range map[string]string{"1": "orders.billing.retry", "2": "stock.storage.retry", "3": "stock.packing.retry"} {
		testkit.NoError(t, hidden.Of(channel.Stages()).Store().Put(t.Context(), topic, newMessage(id), time.Hour))
	}
}

// park parks messages of two topics: of orders one that waits, one that is due since a while, with one behind it, and a
// held one.
func park(t *testing.T, db *sql.DB) {
	t.Helper()
	store := testkit.Must(sequence.NewStore(t.Context(), db, ""))
	for position, row := range []struct {
		topic, key string
		partition  int32
		wait       time.Duration
		held       bool
	}{{"orders", "a", 0, time.Hour, false}, {"orders", "b", 1, -1000 * time.Hour, false}, {"orders", "b", 1, time.Hour, false},
		{"orders", "c", 1, -2000 * time.Hour, true}, {"stock", "a", 0, time.Hour, false}} {
		msg := newMessage(row.topic + row.key)
		testkit.NoError(t, store.Park(t.Context(), parked.Source{Topic: row.topic, Partition: row.partition},
			&sequence.Row{Lane: []byte(row.key), RecordKey: []byte(row.key), Position: int64(position), Fingerprint: sequence.FingerprintOf(msg),
				Msg: msg, Held: row.held}, row.wait))
	}
}

// stop starts a campaign of one letter, which stops itself, and returns its id.
func stop(t *testing.T, channel *spillway.Channel, all *campaigns.Campaigns) string {
	t.Helper()
	(&instance{channel: channel}).letter(t, "1", "boom")
	act := campaigns.Act{By: "ann", Reason: "a test"}
	c, err := all.Start(t.Context(), campaigns.Request{Filter: letters.Filter{}, Act: act})
	if err == nil {
		_, err = all.Pause(t.Context(), c.ID, campaigns.Act{By: campaigns.ByItself, Reason: "1 of 1 letters failed again"})
	}
	testkit.NoError(t, err)
	return c.ID
}

// delayStore is where messages wait for their stage, in db.
func delayStore(t *testing.T, db *sql.DB) *delay.Store {
	return testkit.Must(delay.NewStore(t.Context(), db, ""))
}
