package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
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
		stage := context.WithValue(msg.Context(), handlerName, "billing.retry.5s")
		msg.SetContext(WithReentry(stage, &Reentry{Handler: "billing", Stage: 2}))
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
	live.msg.SetContext(context.WithValue(live.msg.Context(), handlerName, "shipping"))
	_, _ = h(live.msg)
	if len(names) != 3 || names[0] != "billing" || names[1] != "billing" || names[2] != "shipping" {
		t.Errorf("handled as %q", names)
	}
	if ReentryOf(context.Background()) != nil {
		t.Error("a message that never left comes again")
	}
}
