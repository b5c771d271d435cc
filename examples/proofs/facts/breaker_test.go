package facts_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// Fact, feature R12: Watermill's CircuitBreaker answers with an error while it is open, and its PoisonQueue
// dead-letters that. So an outage of two messages sets aside every message that comes while the breaker is open, also
// when the downstream is back. TestMigratingOutage shows that the breaker does not.
func TestFactWatermillBreakerDeadLettersHealthy(t *testing.T) {
	b, dead := shop.New(t, false), &shop.Outputs{}
	queue := testkit.Must(wm.PoisonQueue(dead, "poison"))
	breaker := wm.NewCircuitBreaker(gobreaker.Settings{
		Timeout: time.Hour, ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= 2 }})
	var calls atomic.Int32
	stop := b.Run(func(router *message.Router) { router.AddMiddleware(queue, breaker.Middleware) },
		func(msg *message.Message) ([]*message.Message, error) {
			if calls.Add(1) <= 2 {
				return nil, errors.New("the downstream is down")
			}
			return nil, b.Apply(msg)
		})
	defer stop()
	b.Publish(shop.Numbered(20)...)
	b.Eventually("all messages ended", func() bool { return len(dead.IDs())+len(b.Effects()) == 20 })
	if n := len(dead.IDs()); n != 20 {
		t.Errorf("%d of 20 are dead letters: Watermill's breaker dead-letters no healthy message any more", n)
	}
}
