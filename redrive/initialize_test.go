package redrive_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// strict is an outbox that takes nothing for a topic which it was not asked to make, as Kafka and AMQP do.
type strict struct {
	lock sync.Mutex
	outbox
	topics  []string
	sources []string
	cannot  error
}

func (s *strict) InitializeTopicsFor(source string, topics ...string) error {
	if s.cannot != nil {
		return fmt.Errorf("topic %q is missing: %w", topics[0], s.cannot)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.sources = append(s.sources, source)
	s.topics = append(s.topics, topics...)
	return nil
}

func (s *strict) Publish(topic string, messages ...*message.Message) error {
	s.lock.Lock()
	known := slices.Contains(s.topics, topic)
	s.lock.Unlock()
	if !known {
		return fmt.Errorf("there is no topic %q", topic)
	}
	return s.outbox.Publish(topic, messages...)
}

// Feature D16, promise P4: what a handler parks and quarantines has a place before its first letter comes, whichever
// way the handler is used; a place that cannot be made is an error at start-up.
func TestParkIsInitialized(t *testing.T) {
	over, unchosen := letter("over", "a", redrivenTimes(3)), message.NewMessage("plain", nil)
	both := func(t *testing.T, park *strict, topic string) {
		t.Helper()
		eventually(t, "both are placed", func() bool { return len(park.All()) == 2 })
		if want := []string{topic + ".parked", topic + ".quarantine"}; !slices.Equal(park.topics, want) || !slices.Equal(park.sources, []string{topic}) {
			t.Errorf("made %v for %v", park.topics, park.sources)
		}
	}
	t.Run("plugin", func(t *testing.T) {
		pubsub, park := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), &strict{}
		h := newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park})
		testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) { r.AddPlugin(h.Plugin(pubsub, "orders.dlq")) })
		if len(park.topics) != 2 {
			t.Errorf("at the start there are %v", park.topics)
		}
		publish(t, pubsub, "orders.dlq", over.Copy(), unchosen.Copy())
		both(t, park, "orders.dlq")
	})
	t.Run("handle alone", func(t *testing.T) {
		park := &strict{}
		h := newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park})
		for _, msg := range []*message.Message{over, unchosen} {
			testkit.NoError(t, h.Handle(msg.Copy()))
		}
		both(t, park, "unknown")
	})
	t.Run("drain", func(t *testing.T) {
		park := &strict{}
		if report, err := topicConfig(t, &outbox{}, park, over, unchosen).drain(t.Context()); err != nil || report.Taken != 2 {
			t.Errorf("%+v, %v", report, err)
		}
		both(t, park, "orders.dlq")
	})
	t.Run("cannot", func(t *testing.T) {
		park := &strict{cannot: errDown}
		h := newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park})
		pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
		router.AddPlugin(h.Plugin(pubsub, "orders.dlq"))
		_, draining := topicConfig(t, &outbox{}, park, over).drain(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), deadline) // a router that starts runs on
		defer cancel()
		for _, err := range []error{router.Run(ctx), draining} {
			if err == nil || !strings.Contains(err.Error(), "orders.dlq.parked") || !strings.Contains(err.Error(), errDown.Error()) {
				t.Error(err)
			}
		}
		_ = pubsub.Close()
	})
}

// metered is as Watermill's metrics decorator, which has the publisher in an unexported field.
type metered struct{ pub message.Publisher }

func (m metered) Publish(topic string, messages ...*message.Message) error {
	return m.pub.Publish(topic, messages...)
}
func (m metered) Close() error { return m.pub.Close() }

// Feature D16: a Park that hides its initializer is refused at construction, of a drain too, and goes with
// WithInitializer.
func TestParkThatHidesItsInitializer(t *testing.T) {
	park := &strict{}
	_, err := redrive.NewHandler(&outbox{}, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Park: metered{park}})
	_, draining := topicConfig(t, &outbox{}, metered{park}).drain(t.Context())
	for _, err := range []error{err, draining} {
		if err == nil || !strings.Contains(err.Error(), "Config.Park: ") || !strings.Contains(err.Error(), "poison.WithInitializer") {
			t.Errorf("got %v", err)
		}
	}
	newHandler(t, &outbox{}, redrive.HandlerConfig{Park: poison.WithInitializer(metered{park}, poison.TopicsExist)})
}

// Promise P4: a letter that does not fit with the reason of its quarantine goes there without it.
func TestHandler_quarantinesWhatIsTooLarge(t *testing.T) {
	park := &outbox{Before: func(_ string, msg *message.Message) error {
		if msg.Metadata.Get(poison.KeyFailureReason) == classify.ReasonMaxRedrives {
			return classify.ErrTooLarge
		}
		return nil
	}}
	h := newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park})
	msg := letter("1", "a", redrivenTimes(3))
	if err := h.Handle(msg); err != nil || len(park.All()) != 1 || !park.All()[0].Msg.Equals(msg) {
		t.Errorf("%v: %v", park.All(), err)
	}
}
