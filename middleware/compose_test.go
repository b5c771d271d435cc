package middleware_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
)

// Promises P1, P4: all parts in their order around one handler: success, retry, panic, undeliverable, each once.
func TestRouterAllParts(t *testing.T) {
	source, dead := newPartition("good", "late", "panics", "untaken", "old", "last"), &publisher{}
	source.messages[4].Metadata.Set("expires", "1999-01-01T00:00:00Z")
	pub := &publisher{refuse: refusing("out of untaken", 999, errBoom)}
	o := newOutputs(t, dead, middleware.OutputsConfig{Backoff: quick})
	e := &echo{}
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware, newQueue(t, dead).Middleware,
			newGuard(t, middleware.GuardConfig{ExpiresKey: "expires", MaxHops: 3}).Middleware,
			newRetry(t, middleware.RetryConfig{Backoff: quick}).Middleware, middleware.Recover)
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("billing", "orders", source, "invoices", pub, func(m *message.Message) ([]*message.Message, error) {
			id := m.UUID
			out, err := e.handle(m)
			switch {
			case id == "panics":
				panic("boom")
			case id == "late" && e.called(id) < 3:
				return out, errBoom
			}
			return out, err
		})
	})
	eventually(t, "all sources are acked", source.drained)
	stop()
	reasons := make(map[string]string)
	for _, l := range dead.letters(t) {
		reasons[l.Original.UUID] = l.Failure.Reason
		if strings.Contains(l.Failure.Stack, "internal/chain") || strings.Contains(l.Failure.Stack, "Recover") {
			t.Errorf("the stack goes on beyond the handler:\n%s", l.Failure.Stack)
		}
	}
	want := map[string]string{"panics": classify.ReasonPanic, "untaken": classify.ReasonOutput, "old": classify.ReasonExpired}
	if len(reasons) != 3 || reasons["panics"] != want["panics"] || reasons["untaken"] != want["untaken"] || reasons["old"] != want["old"] {
		t.Errorf("set aside: %v, want %v", reasons, want)
	}
	if !slices.Equal(pub.ids(), []string{"out of good", "out of late", "out of last"}) || e.called("late") != 3 || e.called("old") != 0 {
		t.Errorf("published %v, handled %v", pub.ids(), e.calls)
	}
	if hops := pub.messages()[0].Metadata.Get("x-hop-count"); hops != "1" {
		t.Errorf("the output's hop count is %q", hops)
	}
}

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
