package chain

import (
	"context"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Decision 6: a message out of a stage is consumed under the name of the handler that it first came to, also by parts
// that are attached one by one, each with a chain of its own, and after whatever the handler did to its context. A
// message that never left is not.
func TestReentryIsTheOriginHandlers(t *testing.T) {
	var seen []string
	part := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			seen = append(seen, message.HandlerNameFromCtx(c.Ctx))
			if name := message.HandlerNameFromCtx(c.Ctx); (c.Reentry != nil && c.Reentry.Stage == 2) != (name == "billing") {
				t.Errorf("%q comes again: %+v", name, c.Reentry)
			}
			return next(c)
		}
	}
	h := Enter(part)(Enter(part)(func(m *message.Message) ([]*message.Message, error) {
		m.SetContext(context.Background())
		return nil, errBoom
	}))
	for range 2 {
		msg := ordinary().msg
		stage := WithHandler(msg.Context(), "billing.retry.5s")
		msg.SetContext(WithReentry(stage, &Reentry{Handler: "billing", As: "billing.retry.5s", Stage: 2}))
		_, err := h(msg)
		name, topic := message.HandlerNameFromCtx(msg.Context()), message.SubscribeTopicFromCtx(msg.Context())
		testkit.Check(t, err == errBoom && name == "billing" && topic == "" && ReentryOf(msg.Context()).Stage == 2,
			"%v, left as %q of %q", err, name, topic)
	}
	live := ordinary()
	live.msg.SetContext(WithHandler(live.msg.Context(), "shipping"))
	_, _ = h(live.msg)
	want := []string{"billing", "billing", "billing", "billing", "shipping", "shipping"}
	testkit.Check(t, slices.Equal(seen, want) && ReentryOf(context.Background()) == nil, "handled as %q", seen)
}

// A context that a pub/sub handed on, with what a handler published, does not make the next handler the first one.
func TestReentryIsNotHandedOn(t *testing.T) {
	ctx := WithReentry(Within(context.Background(), "billing.retry.5s", "orders"), &Reentry{Handler: "billing", As: "billing.retry.5s"})
	testkit.Check(t, ReentryOf(ctx) != nil && ReentryOf(Within(ctx, "billing", "orders")) != nil,
		"the handler itself is not known")
	r := ReentryOf(Within(ctx, "mailing", "invoices"))
	testkit.Check(t, r == nil, "another handler is %+v", r)
}
