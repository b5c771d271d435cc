package middleware_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
)

// Feature D11: outputs carry the count on, also where the handler wiped it, and a circle ends.
func TestHopsAreCounted(t *testing.T) {
	g := newGuard(t, middleware.GuardConfig{MaxHops: 3})
	circle := g.Middleware(func(m *message.Message) ([]*message.Message, error) {
		m.Metadata = nil
		return []*message.Message{message.NewMessage("next", nil)}, nil
	})
	msg := newMessage("1")
	for handled := 0; ; handled++ {
		out, err := circle(msg)
		if err != nil {
			if v := verdict(err); handled != 4 || v.Reason != classify.ReasonMaxHops {
				t.Fatalf("stopped after %d handlers: %v", handled, err)
			}
			return
		}
		msg = out[0].Copy()
	}
}

// Feature D11, promises P2, P4: what a guard writes into outputs. The source stays as it arrived, or its redeliveries
// would be taken for hops. Nil outputs are left to Recover.
func TestHopsOfOutputs(t *testing.T) {
	for name, row := range map[string]struct {
		max     int
		arrived string
		out     func(*message.Message) []*message.Message
		want    []string
	}{
		"the source passed on": {9, "4", func(m *message.Message) []*message.Message {
			return []*message.Message{m, m, message.NewMessage("new", nil)}
		}, []string{"5", "5", "5"}},
		"the source's metadata": {9, "", func(m *message.Message) []*message.Message {
			return []*message.Message{{UUID: "out", Metadata: m.Metadata}}
		}, []string{"1"}},
		"none, and nil":   {1, "", func(*message.Message) []*message.Message { return []*message.Message{{UUID: "bare"}, nil} }, []string{"1", "nil"}},
		"without MaxHops": {0, "4", func(m *message.Message) []*message.Message { return []*message.Message{{UUID: "out"}} }, []string{""}},
	} {
		msg := newMessage("1")
		msg.Metadata.Set("x-hop-count", row.arrived)
		before := maps.Clone(msg.Metadata)
		out, err := newGuard(t, middleware.GuardConfig{MaxHops: row.max, Required: []string{"tenant"}}).Middleware(
			func(m *message.Message) ([]*message.Message, error) { return row.out(m), nil })(msg)
		var counts []string
		for _, m := range out {
			if m == nil {
				counts = append(counts, "nil")
				continue
			}
			counts = append(counts, m.Metadata.Get("x-hop-count"))
		}
		if err != nil || !slices.Equal(counts, row.want) || !maps.Equal(msg.Metadata, before) {
			t.Errorf("%s: counts %v, on the source %v, error %v", name, counts, msg.Metadata, err)
		}
	}
}
