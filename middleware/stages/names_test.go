package stages_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
)

// stagesConfig is one that is complete.
func stagesConfig(t testing.TB) stages.Config {
	b := newBroker()
	subscriber := func(string, string) (message.Subscriber, error) { return b.consumer(), nil }
	return stages.Config{Publisher: b, Subscriber: subscriber}
}

// A nil *delay.Store is none: messages wait in topics.
func TestNilStore(t *testing.T) {
	s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second), Store: (*delay.Store)(nil)}, nil)
	testkit.Check(t, hidden.Of(s.stages).Store() == nil, "stages have a store")
}

// Conventions: a configuration with which messages could be lost, or wait for good, is an error that names the field.
func TestConfigRefused(t *testing.T) {
	for want, change := range map[string]func(*stages.Config){
		"Publisher is nil":       func(c *stages.Config) { c.Publisher = (*broker)(nil) },
		"Subscriber is nil":      func(c *stages.Config) { c.Subscriber = nil },
		"Jitter is 1.5":          func(c *stages.Config) { c.Jitter = 1.5 },
		"Stages[1].Delay is 5ns": func(c *stages.Config) { c.Stages = stages.Delays(time.Second, 5) },
		"Stages[0].Delay is 262": func(c *stages.Config) { c.Stages = stages.Delays(30 * 365 * 24 * time.Hour) },
		"no stage":               func(c *stages.Config) { c.Stages = []stages.Stage{} },
		"not Retired":            func(c *stages.Config) { c.Stages = []stages.Stage{{Delay: time.Second, Retired: true}} },
		`Config.Naming: naming: Scheme.Stage is "{topic}"`: func(c *stages.Config) { c.Naming.Stage = "{topic}" },
		"put {topic} and {handler} into":                   func(c *stages.Config) { c.Naming.Stage = "{topic}.later" },
		"handlers would take each other's":                 func(c *stages.Config) { c.Naming.Reentry = "{topic}.again" },
		"for delays of 5s and 1m0s":                        func(c *stages.Config) { c.Naming.Stage = "{topic}.{handler}.later" },
	} {
		config := stagesConfig(t)
		change(&config)
		testkit.Says(t, testkit.Err(stages.New(newQueue(t, testkit.Nowhere{}), config)), want)
	}
	testkit.Says(t, testkit.Err(stages.New(nil, stagesConfig(t))), "the queue is nil")
}

func newRouter(t testing.TB) *message.Router {
	return testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
}

// names are those of the router's handlers.
func names(router *message.Router) (names []string) {
	for name := range router.Handlers() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Feature R9: what cannot be set up is an error, the router is left as it was, and subscribers that were made are
// closed.
func TestStagesAddRefused(t *testing.T) {
	nobody := func(*message.Message) error { return nil }
	for want, second := range map[string]func() (message.Subscriber, error){
		"it is nil":       func() (message.Subscriber, error) { return nil, nil },
		"1m\": it is nil": func() (message.Subscriber, error) { return (*consumer)(nil), nil },
		"no such group":   func() (message.Subscriber, error) { return nil, errors.New("no such group") },
		"panic: boom":     func() (message.Subscriber, error) { panic("boom") },
	} {
		b := newBroker()
		var asked []string
		config := stagesConfig(t)
		config.Subscriber = func(topic, group string) (message.Subscriber, error) {
			if asked = append(asked, topic+" "+group); len(asked) == 2 {
				return second()
			}
			return b.consumer(), nil
		}
		later := testkit.Must(stages.New(newQueue(t, testkit.Nowhere{}), config))
		router := newRouter(t)
		_, err := later.AddConsumerHandler(router, "billing", "orders", b.consumer(), nobody)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"billing"`) {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(router.Handlers()) != 0 || len(b.closed) != 1 || asked[0] != "orders.billing.retry.5s orders.billing.retry.5s" {
			t.Errorf("%s: router has %v, closed %q, asked for %q", want, names(router), b.closed, asked)
		}
		entry := later.ReentryTopic(poison.Letter{Origin: poison.Origin{Topic: "orders", Handler: "billing"}})
		testkit.Check(t, entry == "", "%s: letters enter at %q", want, entry)
	}
}

// Feature R9: names that mean no handler, or another one, are refused before the router is touched.
func TestStagesNamesRefused(t *testing.T) {
	config, b := stagesConfig(t), newBroker()
	config.Subscriber = func(string, string) (message.Subscriber, error) { return b.consumer(), nil }
	config.Naming.Names = map[string]string{"itself.c.retry.5s": "itself", "orders.shipping.retry.5s": "orders.billing.retry.5s"}
	later := testkit.Must(stages.New(newQueue(t, testkit.Nowhere{}), config))
	router := newRouter(t)
	add := func(name, topic string) error {
		_, err := later.AddConsumerHandler(router, name, topic, b.consumer(), func(*message.Message) error { return nil })
		return err
	}
	if err := add("billing", "orders"); err != nil || len(router.Handlers()) != 1 {
		t.Fatalf("%v, %v", err, names(router))
	}
	for _, row := range []struct{ name, topic, want string }{
		{"", "orders", "must not be empty"},
		{"shipping", "", "must not be empty"},
		{"billing", "invoices", `a handler of this name is on topic "orders"`},
		{"shipping", "orders", `has the same stage topic "orders.billing.retry.5s"`},
		{"c", "itself", "must be another topic"},
	} {
		if err := add(row.name, row.topic); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s on %s: %v, want %q", row.name, row.topic, err, row.want)
		}
	}
	testkit.Check(t, testkit.Err(later.AddConsumerHandler(router, "e", "e", (*consumer)(nil), nil)) != nil,
		"a nil subscriber is taken")
	_, err := later.AddHandler(router, "e", "e", b.consumer(), "out", nil, nil)
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "AddConsumerHandler"), "a nil publisher: %v", err)
	testkit.Says(t, testkit.Err(later.Extend(router, "e", "e")), "add it first")
	_, err = (*stages.Stages)(nil).AddConsumerHandler(router, "e", "e", b.consumer(), nil)
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "no stages"), "no stages: %v", err)
	if len(router.Handlers()) != 1 || len(b.closed) != 0 { // none was asked for
		t.Errorf("the router has %v, closed %d subscribers", names(router), len(b.closed))
	}
	defer func() { // as the router's own AddHandler does
		if _, ok := recover().(message.DuplicateHandlerNameError); !ok {
			t.Error("a name is taken twice")
		}
	}()
	_ = add("billing", "orders")
}

// staging is a router with stages, on a pub/sub whose time is that of synctest.
type staging struct {
	*testing.T
	broker  *broker
	letters *letters
	stages  *stages.Stages
	router  *message.Router
	stop    func()
}

type handled struct {
	at       time.Duration
	name     string
	topic    string
	metadata message.Metadata
}

// note records the invocations of a handler by message id.
type note struct {
	mu    sync.Mutex
	start time.Time
	by    map[string][]handled
}

// of are the invocations for one message.
func (n *note) of(id string) []handled {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.by[id])
}

func newNote() *note { return &note{start: time.Now(), by: map[string][]handled{}} }

func (n *note) add(msg *message.Message) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx := msg.Context()
	n.by[msg.UUID] = append(n.by[msg.UUID], handled{time.Since(n.start), message.HandlerNameFromCtx(ctx), message.SubscribeTopicFromCtx(ctx), msg.Copy().Metadata})
	return len(n.by[msg.UUID])
}
