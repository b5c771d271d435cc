package prom_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
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
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

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

// gathered waits until the registry has these lines.
func (s *service) gathered(t *testing.T, want string) {
	t.Helper()
	names := map[string]bool{}
	for line := range strings.Lines(want) {
		if name, _, found := strings.Cut(strings.TrimPrefix(line, "# HELP "), " "); found && strings.HasPrefix(line, "# HELP ") {
			names[name] = true
		}
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	var err error
	testkit.Eventually(t, "the metrics", func() bool {
		err = testutil.GatherAndCompare(s.registry, strings.NewReader(want), list...)
		return err == nil
	}, func() string { return err.Error() })
}

var errBoom = errors.New("boom")

// Feature O1: what happens in a channel is counted, under bounded labels, and a hook of the user's is called too.
func TestCounts(t *testing.T) {
	var calls, placed atomic.Int32
	db := open(t)
	s := start(t, prom.Config{Interval: time.Millisecond}, spillway.Config{
		Service: "shop", DB: db,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Queue: poison.QueueConfig{Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { placed.Add(1) }}},
	}, func(msg *message.Message) error {
		calls.Add(1)
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
	s.gathered(t, `
# HELP spillway_attempts_total Calls of handlers, by their outcome: success, or the class of the error.
# TYPE spillway_attempts_total counter
spillway_attempts_total{handler="billing",outcome="aborted",topic="orders"} 0
spillway_attempts_total{handler="billing",outcome="discard",topic="orders"} 1
spillway_attempts_total{handler="billing",outcome="invalid",topic="orders"} 0
spillway_attempts_total{handler="billing",outcome="permanent",topic="orders"} 2
spillway_attempts_total{handler="billing",outcome="success",topic="orders"} 4
spillway_attempts_total{handler="billing",outcome="transient",topic="orders"} 2
spillway_attempts_total{handler="billing",outcome="unknown",topic="orders"} 0
# HELP spillway_dead_letters_total Messages dead-lettered, confirmed by the publisher of dead letters.
# TYPE spillway_dead_letters_total counter
spillway_dead_letters_total{class="permanent",handler="billing",reason="no_such_customer",topic="orders"} 2
spillway_dead_letters_total{class="transient",handler="billing",reason="transient_max_retries",topic="orders"} 1
# HELP spillway_retries_total Messages that are to be handled again: in place, or in a stage, whose number is the stage.
# TYPE spillway_retries_total counter
spillway_retries_total{handler="billing",place="process",stage="",topic="orders"} 1
# HELP spillway_discarded_total Messages dropped because their error says so.
# TYPE spillway_discarded_total counter
spillway_discarded_total{handler="billing",reason="discard",topic="orders"} 1
# HELP spillway_messages_applied_total Messages that the idempotent receiver applied.
# TYPE spillway_messages_applied_total counter
spillway_messages_applied_total{consumer="shop/billing"} 3
# HELP spillway_duplicates_total Messages that the receiver absorbed because they were applied before.
# TYPE spillway_duplicates_total counter
spillway_duplicates_total{consumer="shop/billing"} 1
# HELP spillway_letters_causes Causes whose letters wait, at most 1,000.
# TYPE spillway_letters_causes gauge
spillway_letters_causes 2
# HELP spillway_source_up 1 if the database answered, and some instance of the service asked it lately.
# TYPE spillway_source_up gauge
spillway_source_up{source="letters"} 1
# HELP spillway_ok 1 if no handler's messages are held, and no message found a store of the channel away.
# TYPE spillway_ok gauge
spillway_ok 1
`)
	if placed.Load() != 3 {
		t.Errorf("the user's own hook was called %d times for 3 letters", placed.Load())
	}
	problems, err := testutil.GatherAndLint(s.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("promtool check metrics: %v, %v", problems, err)
	}
	live := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer live.Close()
	testkit.Must(redrive.Drain(t.Context(), s.channel.Letters(), live, redrive.DrainConfig{
		Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: s.metrics.Redrives(redrive.Hooks{})},
	}))
	s.gathered(t, `
# HELP spillway_redriven_total Letters that a drain or redrive handler brought back, by the topic that they were published to.
# TYPE spillway_redriven_total counter
spillway_redriven_total{topic="orders"} 3
# HELP spillway_letters_causes Causes whose letters wait, at most 1,000.
# TYPE spillway_letters_causes gauge
spillway_letters_causes 0
`)
}

// Feature O1: a database that is away is a series, and ends no scrape. What was known stays for 5 minutes.
func TestStoreAway(t *testing.T) {
	db := open(t)
	s := start(t, prom.Config{Interval: time.Millisecond}, spillway.Config{DB: db}, func(*message.Message) error {
		return classify.Permanent(errBoom)
	})
	s.publish(t, "1")
	const waiting = `
# HELP spillway_letters_causes Causes whose letters wait, at most 1,000.
# TYPE spillway_letters_causes gauge
spillway_letters_causes 1
# HELP spillway_source_up 1 if the database answered, and some instance of the service asked it lately.
# TYPE spillway_source_up gauge
spillway_source_up{source="letters"} %d
`
	s.gathered(t, fmt.Sprintf(waiting, 1))
	testkit.NoError(t, db.Close())
	s.gathered(t, fmt.Sprintf(waiting, 0))
}

// Feature O1: the guard's state is a series while it is open.
func TestGuardIsSeen(t *testing.T) {
	guard := &breaker.Config{}
	s := start(t, prom.Config{}, spillway.Config{DB: open(t), Breaker: guard}, func(*message.Message) error { return nil })
	if guard.Hooks.OnChange != nil {
		t.Error("the caller's configuration was changed")
	}
	s.channel.Breaker().Open("billing", "by hand")
	s.gathered(t, `
# HELP spillway_outage_open 1 while the breaker holds a handler's messages, by its state. A freeze of all handlers has an empty handler.
# TYPE spillway_outage_open gauge
spillway_outage_open{handler="billing",state="frozen"} 1
# HELP spillway_ok 1 if no handler's messages are held, and no message found a store of the channel away.
# TYPE spillway_ok gauge
spillway_ok 0
# HELP spillway_outage_changes_total Changes of a breaker, by the new state.
# TYPE spillway_outage_changes_total counter
spillway_outage_changes_total{handler="billing",state="frozen"} 1
`)
	s.channel.Breaker().Close("billing")
	s.gathered(t, `
# HELP spillway_ok 1 if no handler's messages are held, and no message found a store of the channel away.
# TYPE spillway_ok gauge
spillway_ok 1
`)
}

// A configuration that cannot work is an error that names the field.
func TestRefusals(t *testing.T) {
	registry := prometheus.NewRegistry()
	testkit.Must(prom.New(prom.Config{Registerer: registry}))
	for says, config := range map[string]prom.Config{
		"Registerer is nil": {},
		"another Metrics":   {Registerer: registry},
		"MaxValues is -1":   {Registerer: registry, MaxValues: -1},
		"Interval (-1s)":    {Registerer: registry, Interval: -time.Second},
	} {
		if _, err := prom.New(config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	metrics, err := prom.New(prom.Config{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"channel": "2"}, prometheus.NewRegistry())})
	testkit.NoError(t, err)
	if err := metrics.Watch(t.Context(), nil); err == nil {
		t.Error("a nil channel is accepted")
	}
	config := spillway.Config{Publisher: nowhere{}}
	config.Observers = []spillway.Observer{metrics}
	channel := testkit.Must(spillway.New(t.Context(), config))
	testkit.NoError(t, metrics.Watch(t.Context(), channel))
	if err := metrics.Watch(t.Context(), channel, nil); err == nil || !strings.Contains(err.Error(), "Campaigns are nil") {
		t.Error(err)
	}
	if err := metrics.Watch(t.Context(), channel); err == nil || !strings.Contains(err.Error(), "called before") {
		t.Error(err)
	}
}

type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }
func (nowhere) Close() error                              { return nil }

// Feature O1: metrics that no channel has are silently dead. Watch says so.
func TestWatchWithoutObserve(t *testing.T) {
	metrics, _ := observing(t)
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}}))
	if err := metrics.Watch(t.Context(), dlc); err == nil || !strings.Contains(err.Error(), "name the Metrics in Config.Observers") {
		t.Error(err)
	}
}

// Feature O1: a hook of the user's takes nothing from the metrics, and is called too.
func TestHooksBesideMetrics(t *testing.T) {
	metrics, registry := observing(t)
	theirs := 0
	dlc := testkit.Must(
		spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}, Observers: []spillway.Observer{metrics},
			Retry: middleware.RetryConfig{Attempts: 1, Hooks: middleware.RetryHooks{
				OnAttempt: func(context.Context, middleware.Attempt) { theirs++ }}}}))
	testkit.Must(dlc.Middleware(message.PassthroughHandler)(message.NewMessage("1", nil)))
	if n, err := testutil.GatherAndCount(registry, "spillway_attempts_total"); n == 0 || theirs != 1 {
		t.Errorf("%d series of attempts, %d calls of the user's hook: %v", n, theirs, err)
	}
}

func observing(t *testing.T) (*prom.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry}))
	return metrics, registry
}
