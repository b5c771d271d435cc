package breaker_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// What the breaker adds to a chain: nothing failed lately, and something failed lately.
func BenchmarkHappyPath(b *testing.B) {
	for name, failed := range map[string]bool{"quiet": false, "troubled": true} {
		b.Run(name, func(b *testing.B) {
			g := newBreaker(b, breaker.Config{})
			if failed {
				_, _ = g.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(newMessage(b.Context(), "bad"))
			}
			h, msg := g.Middleware(succeed), newMessage(b.Context(), "good")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = h(msg)
			}
		})
	}
	b.Run("without", func(b *testing.B) {
		h, msg := chain.Enter()(succeed), newMessage(b.Context(), "good")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = h(msg)
		}
	})
}
