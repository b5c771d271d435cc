package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/foreign"
)

// Decision 6: a message out of a stage is consumed under the name of the handler that it first came to, on entry and
// after whatever the handler did to its context; a message that never left is not.
func TestReentryIsTheOriginHandlers(t *testing.T) {
	var names []string
	h := Enter(noting("step", new([]string)))(func(m *message.Message) ([]*message.Message, error) {
		names = append(names, message.HandlerNameFromCtx(m.Context()))
		m.SetContext(context.Background())
		return nil, errBoom
	})
	for range 2 {
		msg := ordinary().msg
		stage := foreign.WithHandler(msg.Context(), "billing.retry.5s")
		msg.SetContext(WithReentry(stage, &Reentry{Handler: "billing", As: "billing.retry.5s", Stage: 2}))
		if _, err := h(msg); err != errBoom {
			t.Fatal(err)
		}
		if name := message.HandlerNameFromCtx(msg.Context()); name != "billing" || ReentryOf(msg.Context()).Stage != 2 {
			t.Errorf("left as %q", name)
		}
		if topic := message.SubscribeTopicFromCtx(msg.Context()); topic != "" {
			t.Errorf("its topic is %q", topic)
		}
	}
	live := ordinary()
	live.msg.SetContext(foreign.WithHandler(live.msg.Context(), "shipping"))
	_, _ = h(live.msg)
	if len(names) != 3 || names[0] != "billing" || names[1] != "billing" || names[2] != "shipping" {
		t.Errorf("handled as %q", names)
	}
	if ReentryOf(context.Background()) != nil {
		t.Error("a message that never left comes again")
	}
}

// Decision 6: parts that are attached one by one, each with a chain of its own, all see the handler that the message
// first came to, and where it came from; so does what the message is restored to.
func TestReentryOfNestedChains(t *testing.T) {
	var seen []string
	part := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			if c.Reentry == nil || c.Reentry.Stage != 2 {
				t.Errorf("comes again: %+v", c.Reentry)
			}
			seen = append(seen, message.HandlerNameFromCtx(c.Ctx))
			return next(c)
		}
	}
	h := Enter(part)(Enter(part)(func(m *message.Message) ([]*message.Message, error) {
		m.SetContext(context.Background())
		return nil, errBoom
	}))
	msg := ordinary().msg
	msg.SetContext(WithReentry(foreign.WithHandler(msg.Context(), "billing.retry.5s"), &Reentry{Handler: "billing", As: "billing.retry.5s", Stage: 2}))
	if _, err := h(msg); err != errBoom || message.HandlerNameFromCtx(msg.Context()) != "billing" {
		t.Errorf("%v, left as %q", err, message.HandlerNameFromCtx(msg.Context()))
	}
	if len(seen) != 2 || seen[0] != "billing" || seen[1] != "billing" {
		t.Errorf("seen %q", seen)
	}
}

// A context that a pub/sub handed on, with what a handler published, does not make the next handler the first one.
func TestReentryIsNotHandedOn(t *testing.T) {
	ctx := WithReentry(foreign.Within(context.Background(), "billing.retry.5s", "orders"), &Reentry{Handler: "billing", As: "billing.retry.5s"})
	if ReentryOf(ctx) == nil || ReentryOf(foreign.Within(ctx, "billing", "orders")) == nil {
		t.Error("the handler itself is not known")
	}
	if r := ReentryOf(foreign.Within(ctx, "mailing", "invoices")); r != nil {
		t.Errorf("another handler is %q", r.Handler)
	}
}

// P5: a name that is right already costs no context.
func TestReentryIdentifiesOnce(t *testing.T) {
	r := &Reentry{Handler: "billing"}
	msg := ordinary().msg
	msg.SetContext(foreign.WithHandler(msg.Context(), "billing.retry.5s"))
	r.identify(msg)
	once := msg.Context()
	r.identify(msg)
	if msg.Context() != once || message.HandlerNameFromCtx(once) != "billing" {
		t.Errorf("identified again, as %q", message.HandlerNameFromCtx(msg.Context()))
	}
}
