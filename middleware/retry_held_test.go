package middleware_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/middleware"
)

// heldFor is a part inside Retry that holds each message before its first attempt, as a breaker does.
func heldFor(d time.Duration) chain.Step {
	return func(next chain.Handler) chain.Handler {
		return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
			if c.Held() == 0 {
				time.Sleep(d)
				c.AddHeld(d)
			}
			return next(c)
		}
	}
}

// Feature R1: MaxElapsed does not count the time in which a breaker held the message.
func TestHeldIsNotElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := forever(time.Second)
		config.MaxElapsed = 10 * time.Second
		h, calls := failing(1000, errBoom)
		_, err := chain.Enter(chain.StepOf(newRetry(t, config)), heldFor(time.Hour))(h)(newMessage("1"))
		if f := failureOf(t, err); *calls != 11 || f.Attempts != 11 {
			t.Errorf("%d calls, %v", *calls, f)
		}
	})
}

// Feature C6: a message that was held before its handler said "not now" is held no longer for that, or its broker
// redelivers it.
func TestHeldCountsForNotNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h, _ := failing(1000, classify.NotNow(errors.New("locked")))
		_, err := chain.Enter(chain.StepOf(newRetry(t, middleware.RetryConfig{})), heldFor(15*time.Second))(h)(newMessage("1"))
		wantAborted(t, err)
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it is held for %s", took)
		}
	})
}
