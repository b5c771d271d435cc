package prom_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *sql.DB { return databases.SQLite.New(t) }

// service is a router with a channel, whose metrics are in a registry.
type service struct {
	metrics  *prom.Metrics
	registry *prometheus.Registry
	channel  *spillway.Channel
	live     *gochannel.GoChannel
}

func start(t *testing.T, with prom.Config, config spillway.Config, handle message.NoPublishHandlerFunc) *service {
	t.Helper()
	s := &service{registry: prometheus.NewPedanticRegistry(), live: gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
	with.Registerer = s.registry
	s.metrics = testkit.Must(prom.New(with))
	config.Observers = []spillway.Observer{s.metrics}
	s.channel = testkit.Must(spillway.New(t.Context(), config))
	testkit.NoError(t, s.metrics.Watch(t.Context(), s.channel))
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		s.channel.Attach(r)
		r.AddConsumerHandler("billing", "orders", s.live, handle)
	})
	t.Cleanup(stop)
	return s
}

func (s *service) publish(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		testkit.NoError(t, s.live.Publish("orders", message.NewMessage(id, []byte("acme"))))
	}
}

// gathered waits until Prometheus would get these lines.
func (s *service) gathered(t *testing.T, lines string) {
	t.Helper()
	var got string
	testkit.Eventually(t, "the metrics", func() bool {
		got = served(s.registry)
		for line := range strings.Lines(lines) {
			if !strings.Contains(got, "\n"+line) {
				return false
			}
		}
		return true
	}, func() string { return got })
}

var errBoom = errors.New("boom")

// Feature O1: what happens in a channel is counted, under bounded labels, and a hook of the user's is called too.
func TestCounts(t *testing.T) {
	var placed atomic.Int32
	s := start(t, prom.Config{Interval: time.Millisecond}, spillway.Config{
		Service: "shop", DB: open(t),
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Queue: poison.QueueConfig{Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { placed.Add(1) }}},
	}, func(msg *message.Message) error {
		switch kind, _, _ := strings.Cut(msg.UUID, "-"); kind {
		case "bad":
			return classify.Permanent(errBoom, classify.Reason("no_such_customer"))
		case "shaky":
			return classify.Transient(errBoom)
		case "drop":
			return classify.Discard(errBoom)
		}
		return nil
	})
	s.publish(t, "good-1", "good-2", "bad-1", "bad-2", "shaky-1", "drop-1", "good-3")
	s.publish(t, "good-1") // a duplicate
	s.gathered(t, `spillway_attempts_total{handler="billing",outcome="aborted",topic="orders"} 0
spillway_attempts_total{handler="billing",outcome="discard",topic="orders"} 1
spillway_attempts_total{handler="billing",outcome="invalid",topic="orders"} 0
spillway_attempts_total{handler="billing",outcome="permanent",topic="orders"} 2
spillway_attempts_total{handler="billing",outcome="success",topic="orders"} 4
spillway_attempts_total{handler="billing",outcome="transient",topic="orders"} 2
spillway_attempts_total{handler="billing",outcome="unknown",topic="orders"} 0
spillway_dead_letters_total{class="permanent",handler="billing",reason="no_such_customer",topic="orders"} 2
spillway_dead_letters_total{class="transient",handler="billing",reason="transient_max_retries",topic="orders"} 1
spillway_retries_total{handler="billing",place="process",stage="",topic="orders"} 1
spillway_discarded_total{handler="billing",reason="discard",topic="orders"} 1
spillway_messages_applied_total{consumer="shop/billing"} 3
spillway_duplicates_total{consumer="shop/billing"} 1
spillway_letters_causes 2
spillway_source_up{source="letters"} 1
spillway_ok 1
`)
	testkit.Check(t, placed.Load() == 3, "the user's own hook was called %d times for 3 letters", placed.Load())
	problems, err := testutil.GatherAndLint(s.registry)
	testkit.Check(t, err == nil && len(problems) == 0, "promtool check metrics: %v, %v", problems, err)
	live := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer live.Close()
	testkit.Must(redrive.Drain(t.Context(), s.channel.Letters(), live, redrive.DrainConfig{
		Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: s.metrics.Redrives(redrive.Hooks{})},
	}))
	s.gathered(t, `spillway_redriven_total{topic="orders"} 3
spillway_letters_causes 0
`)
}

// Feature O1: the breaker's state is a series while it is open.
func TestBreakerIsSeen(t *testing.T) {
	config := &breaker.Config{}
	s := start(t, prom.Config{}, spillway.Config{DB: open(t), Breaker: config}, func(*message.Message) error { return nil })
	testkit.Check(t, config.Hooks.OnChange == nil, "the caller's configuration was changed")
	s.channel.Breaker().Open("billing", "by hand")
	s.gathered(t, `spillway_outage_open{handler="billing",state="frozen"} 1
spillway_ok 0
spillway_outage_changes_total{handler="billing",state="frozen"} 1
`)
	s.channel.Breaker().Close("billing")
	s.gathered(t, `spillway_ok 1
`)
}

// A configuration that cannot work is an error that names the field.
func TestRefusals(t *testing.T) {
	registry := prometheus.NewRegistry()
	testkit.Must(prom.New(prom.Config{Registerer: registry}))
	for says, config := range map[string]prom.Config{
		"Registerer is nil": {},
		"MaxValues is -1":   {Registerer: registry, MaxValues: -1},
		"Interval is -1s":   {Registerer: registry, Interval: -time.Second},
	} {
		testkit.Says(t, testkit.Err(prom.New(config)), says)
	}
	metrics := testkit.Must(prom.New(prom.Config{Registerer: prometheus.NewRegistry()}))
	testkit.Check(t, metrics.Watch(t.Context(), nil) != nil, "a nil channel is accepted")
	others := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}}))
	testkit.Says(t, metrics.Watch(t.Context(), others), "name the Metrics in Config.Observers")
	observed := spillway.Config{Publisher: nowhere{}, Observers: []spillway.Observer{metrics}}
	channel := testkit.Must(spillway.New(t.Context(), observed))
	testkit.NoError(t, metrics.Watch(t.Context(), channel))
	testkit.Says(t, metrics.Watch(t.Context(), channel, nil), "Campaigns are nil")
	testkit.Says(t, metrics.Watch(t.Context(), channel), "called before")
}

type nowhere = testkit.Nowhere
