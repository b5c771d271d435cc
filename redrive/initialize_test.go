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
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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

// Feature D16, promise P4: parked and quarantined letters have a place before the first comes, or it is an error.
func TestParkIsInitialized(t *testing.T) {
	over, unchosen := letter("over", "a", redrivenTimes(3)), message.NewMessage("plain", nil)
	both := func(t *testing.T, park *strict, topic string) {
		t.Helper()
		eventually(t, "both are placed", func() bool { return len(park.All()) == 2 })
		want := []string{topic + ".parked", topic + ".quarantine"}
		testkit.Check(t, slices.Equal(park.topics, want) && slices.Equal(park.sources, []string{topic}),
			"made %v for %v", park.topics, park.sources)
	}
	t.Run("plugin", func(t *testing.T) {
		pubsub, park := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), &strict{}
		h := newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park})
		testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) { r.AddPlugin(h.Plugin(pubsub, "orders.dlq")) })
		testkit.Check(t, len(park.topics) == 2, "at the start there are %v", park.topics)
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
		report, err := topicConfig(t, &outbox{}, park, over, unchosen).drain(t.Context())
		testkit.Check(t, err == nil && report.Taken == 2, "%+v, %v", report, err)
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
			testkit.Check(t, err != nil && strings.Contains(err.Error(), "orders.dlq.parked") &&
				strings.Contains(err.Error(), errDown.Error()), "%v", err)
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

// Feature D16: a Park that hides its initializer is refused, and goes with WithInitializer.
func TestParkThatHidesItsInitializer(t *testing.T) {
	park := &strict{}
	_, err := redrive.NewHandler(&outbox{}, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Park: metered{park}})
	_, draining := topicConfig(t, &outbox{}, metered{park}).drain(t.Context())
	for _, err := range []error{err, draining} {
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "Config.Park: ") &&
			strings.Contains(err.Error(), "poison.WithInitializer"), "got %v", err)
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
	testkit.NoError(t, h.Handle(msg))
	testkit.Check(t, len(park.All()) == 1 && park.All()[0].Msg.Equals(msg), "%v", park.All())
}
