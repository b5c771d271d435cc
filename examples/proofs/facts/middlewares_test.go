package facts_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
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
