package spillway_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
)

// The facts about Watermill's own middlewares that this project answers to. When one of these tests fails, Watermill
// has repaired it: say so in the README.

func watermillAlone(t *testing.T, dead message.Publisher, retry wm.Retry) func(*message.Router) {
	t.Helper()
	queue, err := wm.PoisonQueue(dead, "poison")
	if err != nil {
		t.Fatal(err)
	}
	return func(router *message.Router) { router.AddMiddleware(queue, retry.Middleware, wm.Recoverer) }
}

// Fact, promise P3: Retry and PoisonQueue dead-letter a healthy message when the router is closed in a backoff.
// TestShutdownInBackoffIsNoFailure shows that Spillway does not.
func TestFactWatermillDeadLettersAtShutdown(t *testing.T) {
	b, dead := newBench(t, false), &outputs{}
	var failed atomic.Int32
	stop := b.run(watermillAlone(t, dead, wm.Retry{MaxRetries: 5, InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 1}),
		func(*message.Message) ([]*message.Message, error) {
			failed.Add(1)
			return nil, errors.New("the downstream is down")
		})
	b.publish(numbered(1)...)
	b.eventually("it waits in its backoff", func() bool { return failed.Load() == 1 })
	stop()
	if n := len(dead.ids()); n != 1 {
		t.Errorf("%d letters: Watermill dead-letters nothing at shutdown any more", n)
	}
}

// Fact, feature D13: PoisonQueue lets the outputs of a failed handler be published.
// TestFailedHandlersOutputsAreNotPublished shows that Spillway does not.
func TestFactWatermillPublishesFailedHandlersOutputs(t *testing.T) {
	b, dead := newBench(t, false), &outputs{}
	stop := b.run(watermillAlone(t, dead, wm.Retry{InitialInterval: time.Millisecond}), func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("of a failure", nil)}, errors.New("failed")
	})
	defer stop()
	b.publish(numbered(1)...)
	b.eventually("it is dead-lettered", func() bool { return len(dead.ids()) == 1 })
	b.eventually("its output is published", func() bool { return len(b.outs.ids()) == 1 })
}

// Fact, feature D15: an output that cannot be published runs its handler again and again.
// TestUndeliverableOutput shows that Spillway runs it once.
func TestFactWatermillRepeatsHandlerOfUndeliverableOutput(t *testing.T) {
	b, dead := newBench(t, false), &outputs{}
	b.outs.setRefuse(func(*message.Message) error { return errors.New("message was too large") })
	var runs atomic.Int32
	stop := b.run(watermillAlone(t, dead, wm.Retry{InitialInterval: time.Millisecond}), func(*message.Message) ([]*message.Message, error) {
		runs.Add(1)
		return []*message.Message{message.NewMessage("", nil)}, nil
	})
	defer stop()
	b.publish(numbered(1)...)
	b.eventually("the handler ran twenty times", func() bool { return runs.Load() >= 20 })
	if n := len(dead.ids()); n != 0 {
		t.Errorf("%d letters", n)
	}
}

// The order of the parts is the channel's business: attached twice, or to the router and the handler, or under other
// middlewares, it sets aside once and applies once.
func TestAttachedTwice(t *testing.T) {
	b := newBench(t, false)
	var runs atomic.Int32
	ch := b.channel()
	stop := b.run(func(router *message.Router) {
		ch.Attach(router)
		ch.Attach(router)
		router.AddMiddleware(ch.Middleware)
	}, func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)
		if msg.UUID == "id-0000" {
			return nil, errors.New("failed")
		}
		return []*message.Message{message.NewMessage("", nil)}, b.apply(msg)
	})
	defer stop()
	b.publish(numbered(2)...)
	b.eventually("one is set aside, one applied", func() bool {
		return len(b.waiting()) == 1 && len(b.effects()) == 1 && len(b.outs.ids()) == 1
	})
	if n := runs.Load(); n != 3+1 { // attempts do not multiply
		t.Errorf("the handler ran %d times", n)
	}
}

// Bad input: a handler that sets its message aside within its own transaction would wait for itself. It is told so at
// once, and its message ends as a dead letter that says so.
func TestSettingAsideWithinTheTransaction(t *testing.T) {
	b := newBench(t, false)
	ch := b.channel()
	stop := b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID != "id-0000" {
			return nil, b.apply(msg)
		}
		return nil, classify.Permanent(ch.Queue().Place(msg, errors.New("I know better")))
	})
	defer stop()
	b.publish(numbered(2)...)
	b.eventually("one is set aside, one applied", func() bool { return len(b.waiting()) == 1 && len(b.effects()) == 1 })
	if text := b.waiting()[0].Letter.Failure.Description; !strings.Contains(text, "return an error from the handler instead") {
		t.Errorf("it says: %s", text)
	}
}

// Feature D5: a dead-letter store that cannot be written is an error at start-up, not at the first failure.
func TestUnwritableStoreEndsRun(t *testing.T) {
	b := newBench(t, false)
	ch, err := spillway.New(t.Context(), spillway.Config{Publisher: b.letters})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.letters.Close(); err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	ch.Attach(router)
	router.AddHandler("billing", "orders", staysOpen{b.source}, "invoices", b.outs, message.PassthroughHandler)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := router.Run(ctx); err == nil {
		t.Error("the router runs although dead letters have nowhere to go")
	} else {
		t.Log(err)
	}
}
