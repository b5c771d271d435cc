package facts_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
)

// The facts about Watermill's own middlewares that this project answers to. When one of these tests fails, Watermill
// has repaired it: say so in the README.

func watermillAlone(t *testing.T, dead message.Publisher, retry wm.Retry) func(*message.Router) {
	t.Helper()
	queue := testkit.Must(wm.PoisonQueue(dead, "poison"))
	return func(router *message.Router) { router.AddMiddleware(queue, retry.Middleware, wm.Recoverer) }
}

// Fact, promise P3: Retry and PoisonQueue dead-letter a healthy message when the router is closed in a backoff.
// TestRouterClosesWhileRetrying shows that Spillway does not.
func TestFactWatermillDeadLettersAtShutdown(t *testing.T) {
	b, dead := shop.New(t, false), &shop.Outputs{}
	var failed atomic.Int32
	stop := b.Run(watermillAlone(t, dead, wm.Retry{MaxRetries: 5, InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 1}),
		func(*message.Message) ([]*message.Message, error) {
			failed.Add(1)
			return nil, errors.New("the downstream is down")
		})
	b.Publish(shop.Numbered(1)...)
	b.Eventually("it waits in its backoff", func() bool { return failed.Load() == 1 })
	stop()
	if n := len(dead.IDs()); n != 1 {
		t.Errorf("%d letters: Watermill dead-letters nothing at shutdown any more", n)
	}
}

// Fact, feature D13: PoisonQueue lets the outputs of a failed handler be published.
// Row D13 of conformance shows that Spillway does not.
func TestFactWatermillPublishesFailedHandlersOutputs(t *testing.T) {
	b, dead := shop.New(t, false), &shop.Outputs{}
	stop := b.Run(watermillAlone(t, dead, wm.Retry{InitialInterval: time.Millisecond}), func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("of a failure", nil)}, errors.New("failed")
	})
	defer stop()
	b.Publish(shop.Numbered(1)...)
	b.Eventually("it is dead-lettered", func() bool { return len(dead.IDs()) == 1 })
	b.Eventually("its output is published", func() bool { return len(b.Outs.IDs()) == 1 })
}

// Fact, feature D15: an output that cannot be published runs its handler again and again.
// TestRouterUndeliverableOutput shows that Spillway runs it once.
func TestFactWatermillRepeatsHandlerOfUndeliverableOutput(t *testing.T) {
	b, dead := shop.New(t, false), &shop.Outputs{}
	b.Outs.SetRefuse(func(*message.Message) error { return errors.New("message was too large") })
	var runs atomic.Int32
	stop := b.Run(watermillAlone(t, dead, wm.Retry{InitialInterval: time.Millisecond}), func(*message.Message) ([]*message.Message, error) {
		runs.Add(1)
		return []*message.Message{message.NewMessage("", nil)}, nil
	})
	defer stop()
	b.Publish(shop.Numbered(1)...)
	b.Eventually("the handler ran twenty times", func() bool { return runs.Load() >= 20 })
	if n := len(dead.IDs()); n != 0 {
		t.Errorf("%d letters", n)
	}
}

// Fact, feature R12: Watermill's CircuitBreaker answers with an error while it is open, and its PoisonQueue
// dead-letters that. So an outage of two messages sets aside every message that comes while the breaker is open, also
// when the downstream is back. TestHeldMessagesComeAgain shows that the breaker does not.
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

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}
