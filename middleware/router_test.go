package middleware_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// running runs a router with the handlers that add adds, and returns the function that closes it.
func running(t testing.TB, add func(*message.Router)) (stop func()) {
	return testkit.RunRouter(t, watermill.NopLogger{}, add)
}

var eventually = testkit.Eventually

func newChannel(config gochannel.Config) *gochannel.GoChannel {
	return gochannel.NewGoChannel(config, watermill.NopLogger{})
}

func publish(t testing.TB, pub message.Publisher, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		testkit.NoError(t, pub.Publish(topic, newMessage(id)))
	}
}

// Promise P1: a handler without a publisher works under the decorator; an output that a middleware invents for it is
// undeliverable, and its source set aside.
func TestRouterConsumerHandlers(t *testing.T) {
	source, dead := newChannel(gochannel.Config{}), &publisher{}
	o := newOutputs(t, dead, middleware.OutputsConfig{Attempts: 2, Backoff: quick})
	invent := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := h(m)
			if m.UUID == "1" {
				out = append(out, message.NewMessage("invented", nil))
			}
			return out, err
		}
	}
	var handled atomic.Int64
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware, invent)
		r.AddPublisherDecorators(o.Decorate)
		r.AddConsumerHandler("billing", "orders", source, func(*message.Message) error { handled.Add(1); return nil })
		r.AddHandler("nobody", "none", newChannel(gochannel.Config{}), "", nil, (&echo{}).handle) // Watermill allows it
	})
	publish(t, source, "orders", "1", "2")
	eventually(t, "both are handled", func() bool { return handled.Load() == 2 && len(dead.ids()) == 1 })
	stop()
	letters := dead.letters(t)
	testkit.Require(t, handled.Load() == 2 && len(letters) == 1, "%d handled, %d letters", handled.Load(), len(letters))
	if l := letters[0]; l.Failure.Reason != classify.ReasonOutput || !strings.Contains(l.Failure.Description, `"invented"`) {
		t.Errorf("set aside with %q, %q", l.Failure.Reason, l.Failure.Description)
	}
}
