package middleware_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/middleware"
)

// Promise P4: a message for which a part further in needs no further attempt in place is not tried again.
func TestRetryPassesOutcomesOn(t *testing.T) {
	for _, want := range []chain.Next{chain.Stage, chain.DeadLetter, chain.Requeue} {
		calls, got := 0, chain.Done
		inner := func(chain.Handler) chain.Handler {
			return func(*chain.Call) ([]*message.Message, chain.Outcome) {
				calls++
				return nil, chain.Outcome{Next: want, Why: errBoom}
			}
		}
		outer := func(next chain.Handler) chain.Handler {
			return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
				out, o := next(c)
				got = o.Next
				return out, o
			}
		}
		retry := newRetry(t, middleware.RetryConfig{Attempts: 5, Backoff: every(1)})
		_, err := chain.Enter(outer, chain.StepOf(retry), inner)(nil)(newMessage("1"))
		if got != want || calls != 1 || err == nil {
			t.Errorf("%s: %s after %d calls, %v", want, got, calls, err)
		}
	}
}
