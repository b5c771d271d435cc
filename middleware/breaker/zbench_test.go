package breaker_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/middleware/breaker"
)

func BenchmarkHappy(b *testing.B) {
	for _, troubled := range []bool{false, true} {
		b.Run(fmt.Sprint("troubled ", troubled), func(b *testing.B) {
			g := newBreaker(b, breaker.Config{})
			h, msg := g.Middleware(succeed), newMessage(b.Context(), "good")
			if troubled {
				_, _ = g.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(newMessage(b.Context(), "bad"))
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = h(msg)
			}
		})
	}
	b.Run("parallel troubled", func(b *testing.B) {
		g := newBreaker(b, breaker.Config{})
		h := g.Middleware(succeed)
		_, _ = g.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(newMessage(b.Context(), "bad"))
		b.RunParallel(func(pb *testing.PB) {
			msg := newMessage(b.Context(), "good")
			for pb.Next() {
				_, _ = h(msg)
			}
		})
	})
}
