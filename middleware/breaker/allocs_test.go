//go:build !race

package breaker_test

import (
	"testing"

	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Promise P5: success allocates nothing while the breaker is closed.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	h, msg := newBreaker(t, breaker.Config{}).Middleware(succeed), newMessage(t.Context(), "good")
	if n := testing.AllocsPerRun(1000, func() { _, _ = h(msg) }); n != 0 {
		t.Errorf("%g allocations for a message", n)
	}
}
