package middleware_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

func benchMessage(ctx context.Context) *message.Message {
	msg := message.NewMessage("id", make([]byte, 1024))
	for _, key := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(key, "value of "+key)
	}
	msg.SetContext(ctx)
	return msg
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// Promise P5: what a retry costs a message that succeeds.
func BenchmarkRetry(b *testing.B) {
	b.Run("success", func(b *testing.B) { benchmark(b, middleware.RetryConfig{}, succeed) })
	b.Run("success with a budget", func(b *testing.B) { benchmark(b, middleware.RetryConfig{Budget: &middleware.Budget{}}, succeed) })
}

func benchmark(b *testing.B, config middleware.RetryConfig, handler message.HandlerFunc) {
	h, msg := newRetry(b, config).Middleware(handler), benchMessage(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h(msg)
	}
}

// Promise P5: what it costs to insist on outputs that are taken at once.
func BenchmarkOutputs(b *testing.B) {
	o := newOutputs(b, &publisher{}, middleware.OutputsConfig{})
	pub, msg, output := decorate(b, o, taking{}), benchMessage(b.Context()), benchMessage(context.Background())
	h := o.Middleware(func(*message.Message) ([]*message.Message, error) {
		output.SetContext(context.Background())
		return []*message.Message{output}, nil
	})
	b.ReportAllocs()
	for b.Loop() {
		out, _ := h(msg)
		testkit.NoError(b, pub.Publish("invoices", out...))
	}
}

type taking struct{}

func (taking) Publish(string, ...*message.Message) error { return nil }
func (taking) Close() error                              { return nil }
