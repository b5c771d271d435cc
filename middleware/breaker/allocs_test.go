//go:build !race

package breaker_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Promise P5: success allocates nothing while the breaker is closed, also if another message failed lately.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	g := newBreaker(t, breaker.Config{})
	h, msg := g.Middleware(succeed), newMessage(t.Context(), "good")
	for range 2 {
		testkit.Equal(t, "allocations for a message", testing.AllocsPerRun(1000, func() { _, _ = h(msg) }), 0)
		_, _ = g.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(newMessage(t.Context(), "bad"))
	}
}
