package middleware_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
)

// Promise P1: a handler without a publisher works under the decorator; an output that a middleware invents for it is
// undeliverable, and its source set aside.
func TestRouterConsumerHandlers(t *testing.T) {
	source, dead := newPartition("1", "2"), &publisher{}
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
		r.AddHandler("nobody", "none", newPartition(), "", nil, (&echo{}).handle) // Watermill allows it
	})
	eventually(t, "both sources are acked", source.drained)
	stop()
	letters := dead.letters(t)
	if handled.Load() != 2 || len(letters) != 1 {
		t.Fatalf("%d handled, %d letters", handled.Load(), len(letters))
	}
	if l := letters[0]; l.Failure.Reason != classify.ReasonOutput || !strings.Contains(l.Failure.Description, `"invented"`) {
		t.Errorf("set aside with %q, %q", l.Failure.Reason, l.Failure.Description)
	}
}
