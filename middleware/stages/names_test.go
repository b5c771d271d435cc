package stages_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// stagesConfig is one that is complete.
func stagesConfig(t testing.TB) stages.Config {
	b := newBroker()
	return stages.Config{
		Publisher: b, Subscriber: func(string, string) (message.Subscriber, error) { return b.consumer(), nil },
	}
}

// Conventions: a configuration with which messages could be lost, or wait for good, is an error that names the field.
func TestConfigRefused(t *testing.T) {
	for want, change := range map[string]func(*stages.Config){
		"Publisher is nil":       func(c *stages.Config) { c.Publisher = (*publisher)(nil) },
		"Subscriber is nil":      func(c *stages.Config) { c.Subscriber = nil },
		"Jitter is 1.5":          func(c *stages.Config) { c.Jitter = 1.5 },
		"Stages[1].Delay is 5ns": func(c *stages.Config) { c.Stages = stages.Delays(time.Second, 5) },
		"Stages[0].Delay is 262": func(c *stages.Config) { c.Stages = stages.Delays(30 * 365 * 24 * time.Hour) },
		"Stages[0].Concurrency":  func(c *stages.Config) { c.Stages = []stages.Stage{{Delay: time.Second, Concurrency: -1}} },
		"no stage":               func(c *stages.Config) { c.Stages = []stages.Stage{} },
		"not Retired":            func(c *stages.Config) { c.Stages = []stages.Stage{{Delay: time.Second, Retired: true}} },
		`Config.Naming: naming: Scheme.Stage is "{topic}"`: func(c *stages.Config) { c.Naming.Stage = "{topic}" },
		`names "later" for delays of 5s and 1m0s`:          func(c *stages.Config) { c.Naming.Stage = "later" },
	} {
		config := stagesConfig(t)
		change(&config)
		if _, err := stages.New(newQueue(t, &publisher{}), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := stages.New(nil, stagesConfig(t)); err == nil || !strings.Contains(err.Error(), "the queue is nil") {
		t.Errorf("no queue: %v", err)
	}
}

func newRouter(t testing.TB) *message.Router {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	return router
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
	for want, subscriber := range map[string]func(n int, sub message.Subscriber) (message.Subscriber, error){
		"it is nil": func(n int, sub message.Subscriber) (message.Subscriber, error) {
			if n == 2 {
				return nil, nil
			}
			return sub, nil
		},
		"1m\": it is nil": func(n int, sub message.Subscriber) (message.Subscriber, error) {
			if n == 2 {
				return (*consumer)(nil), nil
			}
			return sub, nil
		},
		"no such group": func(n int, sub message.Subscriber) (message.Subscriber, error) {
			if n == 2 {
				return nil, errors.New("no such group")
			}
			return sub, nil
		},
		"panic: boom": func(n int, sub message.Subscriber) (message.Subscriber, error) {
			if n == 2 {
				panic("boom")
			}
			return sub, nil
		},
	} {
		b, calls := newBroker(), 0
		var asked []string
		config := stagesConfig(t)
		config.Subscriber = func(topic, group string) (message.Subscriber, error) {
			calls++
			asked = append(asked, topic+" "+group)
			return subscriber(calls, b.consumer())
		}
		later := testkit.Must(stages.New(newQueue(t, &publisher{}), config))
		router := newRouter(t)
		_, err := later.AddConsumerHandler(router, "billing", "orders", b.consumer(), nobody)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"billing"`) {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(router.Handlers()) != 0 || len(b.closed) != 1 || asked[0] != "orders.billing.retry.5s orders.billing.retry.5s" {
			t.Errorf("%s: router has %v, closed %q, asked for %q", want, names(router), b.closed, asked)
		}
		if entry := later.ReentryTopic(poison.Letter{Origin: poison.Origin{Topic: "orders", Handler: "billing"}}); entry != "" {
			t.Errorf("%s: letters enter at %q", want, entry)
		}
	}
}

// Feature R9: names that mean no handler, or another one, are refused before the router is touched.
func TestStagesNamesRefused(t *testing.T) {
	config, b := stagesConfig(t), newBroker()
	config.Subscriber = func(string, string) (message.Subscriber, error) { return b.consumer(), nil }
	config.Naming = perTopic
	config.Naming.Names = map[string]string{"itself.retry.5s": "itself"}
	later := testkit.Must(stages.New(newQueue(t, &publisher{}), config))
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
		{"shipping", "orders", `has the same stage topic "orders.retry.5s"`},
		{"c", "itself", "must be another topic"},
	} {
		if err := add(row.name, row.topic); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s on %s: %v, want %q", row.name, row.topic, err, row.want)
		}
	}
	if _, err := later.AddConsumerHandler(router, "e", "e", (*consumer)(nil), nil); err == nil {
		t.Error("a nil subscriber is taken")
	}
	if _, err := later.AddHandler(router, "e", "e", b.consumer(), "out", nil, nil); err == nil || !strings.Contains(err.Error(), "AddConsumerHandler") {
		t.Errorf("a nil publisher: %v", err)
	}
	if _, err := later.Extend(router, "e", "e"); err == nil || !strings.Contains(err.Error(), "add it first") {
		t.Errorf("nobody extended: %v", err)
	}
	if _, err := (*stages.Stages)(nil).AddConsumerHandler(router, "e", "e", b.consumer(), nil); err == nil || !strings.Contains(err.Error(), "no stages") {
		t.Errorf("no stages: %v", err)
	}
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
