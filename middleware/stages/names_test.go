package stages_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
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
		testkit.Says(t, testkit.Err(stages.New(newQueue(t, &publisher{}), config)), want)
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
		entry := later.ReentryTopic(poison.Letter{Origin: poison.Origin{Topic: "orders", Handler: "billing"}})
		testkit.Check(t, entry == "", "%s: letters enter at %q", want, entry)
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

// Features R5, R9, R10: a message that fails for the moment is handled again after each delay, by the same handler
// under the same name, while those behind it go on; its story travels with it.
func TestStagesHandleLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(5*time.Second, time.Minute, 10*time.Minute), Jitter: -1}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error {
			if times := n.add(msg); msg.UUID == "bad" && times < 4 {
				return fmt.Errorf("down, time %d", times)
			}
			return nil
		})
		s.run()
		s.publish("orders", "bad", "good")
		time.Sleep(time.Second)
		synctest.Wait()
		testkit.Require(t, len(n.of("good")) == 1 && len(n.of("bad")) == 1,
			"after a second: %v, %v", n.of("good"), n.of("bad"))
		time.Sleep(12 * time.Minute)
		s.stop()
		want := []time.Duration{0, 5 * time.Second, 65 * time.Second, 665 * time.Second}
		testkit.Require(t, len(n.of("bad")) == len(want) && len(s.letters.all()) == 0,
			"handled %v, letters %v", n.of("bad"), s.letters.all())
		for i, h := range n.of("bad") {
			testkit.Check(t, h.at.Truncate(time.Second) == want[i] && h.name == "billing" && h.topic == "orders",
				"attempt %d: %+v", i+1, h)
			if i > 0 && (h.metadata[poison.KeyAttempts] != fmt.Sprint(i) || h.metadata[poison.KeyRetryStage] != fmt.Sprint(i) || h.metadata[poison.KeyOriginalTopic] != "orders") {
				t.Errorf("attempt %d came with %v", i+1, h.metadata)
			}
		}
	})
}

// Feature C5: what no stage helps is set aside with the whole history: at once where it cannot pass with time.
func TestStagesExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, 2*time.Second)}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error {
			n.add(msg)
			switch msg.UUID {
			case "permanent":
				return classify.Permanent(errBoom)
			case "invalid":
				return classify.Invalid(errBoom)
			}
			return classify.Transient(errBoom)
		})
		s.passes(10*time.Second, "permanent", "invalid", "down")
		letters := s.letters.all()
		if len(letters) != 3 || len(n.of("permanent")) != 1 || len(n.of("invalid")) != 1 || len(n.of("down")) != 3 {
			t.Fatalf("letters %v, handled %v", letters, n.of("down"))
		}
		down := letters["down"]
		if down.Failure.Reason != classify.ReasonTransientMaxRetries || down.Failure.Attempts != 3 || len(down.Failure.History) != 3 ||
			down.Origin.Topic != "orders" || down.Origin.Handler != "billing" || down.Failure.LastFailedAt.Sub(down.Failure.FirstFailedAt) < 3*time.Second {
			t.Errorf("%+v", down)
		}
		testkit.Check(t, len(down.Original.Metadata) == 1, "its original has %v", down.Original.Metadata)
	})
}
