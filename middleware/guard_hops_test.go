package middleware_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
)

// hop passes a message through a guarded handler once and returns its outputs' counts.
func hop(t testing.TB, config middleware.GuardConfig, msg *message.Message, h message.HandlerFunc) []string {
	t.Helper()
	out, err := newGuard(t, config).Middleware(h)(msg)
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, m := range out {
		counts = append(counts, m.Metadata.Get("x-hop-count"))
	}
	return counts
}

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

// Promise P2: a handler that passes its message on gets a copy published; the one that arrived can come again as it was.
func TestHopsOfThePassthrough(t *testing.T) {
	msg := newMessage("1")
	msg.Metadata.Set("x-hop-count", "4")
	before := maps.Clone(msg.Metadata)
	counts := hop(t, middleware.GuardConfig{MaxHops: 9}, msg, func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m, m, message.NewMessage("new", nil)}, nil
	})
	if !slices.Equal(counts, []string{"5", "5", "5"}) || !maps.Equal(msg.Metadata, before) {
		t.Fatalf("got counts %v and on the source %v", counts, msg.Metadata)
	}
}

// Promise P2: an output that was given the source's own metadata map does not count on the source: its redeliveries
// would be taken for hops.
func TestHopsOfASharedMap(t *testing.T) {
	msg := newMessage("1")
	counts := hop(t, middleware.GuardConfig{MaxHops: 9}, msg, func(m *message.Message) ([]*message.Message, error) {
		out := message.NewMessage("out", nil)
		out.Metadata = m.Metadata
		return []*message.Message{out}, nil
	})
	if !slices.Equal(counts, []string{"1"}) || !msg.Equals(newMessage("1")) {
		t.Fatalf("got counts %v and on the source %v", counts, msg.Metadata)
	}
}

// Promise P4: outputs without metadata are counted, nil outputs left to Recover.
func TestHopsOfBareOutputs(t *testing.T) {
	out, err := newGuard(t, middleware.GuardConfig{MaxHops: 1}).Middleware(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{{UUID: "bare"}, nil}, nil
	})(newMessage("1"))
	if err != nil || out[0].Metadata.Get("x-hop-count") != "1" || out[1] != nil {
		t.Fatalf("got %v, error %v", out, err)
	}
}

// Feature D11: without MaxHops nothing is written into outputs.
func TestHopsOnlyOnRequest(t *testing.T) {
	counts := hop(t, middleware.GuardConfig{Required: []string{"tenant"}}, newMessage("1"), func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m}, nil
	})
	if !slices.Equal(counts, []string{""}) {
		t.Fatalf("got %v", counts)
	}
}
