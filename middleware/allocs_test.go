//go:build !race

package middleware_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// Promise P5: success allocates nothing, in retry and recover alike.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	msg := benchMessage(t.Context())
	for name, h := range map[string]message.HandlerFunc{
		"retry":   newRetry(t, middleware.RetryConfig{}).Middleware(succeed),
		"budget":  newRetry(t, middleware.RetryConfig{Budget: &middleware.Budget{}}).Middleware(succeed),
		"recover": middleware.Recover(succeed),
	} {
		testkit.Equal(t, name+": allocations for a message", testing.AllocsPerRun(1000, func() { _, _ = h(msg) }), 0)
	}
}
