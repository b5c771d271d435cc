package migrating_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	wmdelay "github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
)

// The statements of docs/migrating.md, one test each. "Outside" is added before Attach, "inside" after it.

func outside(ch *spillway.Channel, middlewares ...message.HandlerMiddleware) func(*message.Router) {
	return func(router *message.Router) { router.AddMiddleware(middlewares...); ch.Attach(router) }
}

func inside(ch *spillway.Channel, middlewares ...message.HandlerMiddleware) func(*message.Router) {
	return func(router *message.Router) { ch.Attach(router); router.AddMiddleware(middlewares...) }
}

// Timeout works inside. Outside it ends the context, so an output that fails once gives its message back.
func TestMigratingTimeout(t *testing.T) {
	for name, where := range map[string]func(*spillway.Channel, ...message.HandlerMiddleware) func(*message.Router){"inside": inside, "outside": outside} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			var refusals, given, runs atomic.Int32
			b.Outs.Refuse = func(*message.Message) error {
				if refusals.Add(1) == 1 {
					return errors.New("the broker hiccups")
				}
				return nil
			}
			ch := b.Channel(func(c *spillway.Config) { c.Idempotency = nil })
			limit := map[string]time.Duration{"inside": 50 * time.Millisecond, "outside": time.Hour}[name]
			stop := b.Run(where(ch, wm.Timeout(limit)), func(msg *message.Message) ([]*message.Message, error) {
				go func() {
					select {
					case <-msg.Acked():
					case <-msg.Nacked():
						given.Add(1)
					}
				}()
				if runs.Add(1) == 1 && name == "inside" {
					<-msg.Context().Done()
					return nil, msg.Context().Err()
				}
				return []*message.Message{message.NewMessage("invoice", nil)}, nil
			})
			b.Publish(shop.Numbered(1)...)
			b.Eventually("the output is published", func() bool { return len(b.Outs.IDs()) == 1 })
			stop()
			if name == "outside" {
				b.Eventually("it was given back", func() bool { return given.Load() == 1 })
			}
			again := given.Load() == 1
			testkit.Check(t, again == (name == "outside") && runs.Load() == 2 && len(b.Waiting()) == 0,
				"given back %v, %d runs, %d letters", again, runs.Load(), len(b.Waiting()))
		})
	}
}

// CircuitBreaker works inside. Open, it dead-letters healthy messages, unless a rule says NotNow.
func TestMigratingCircuitBreaker(t *testing.T) {
	for name, rules := range map[string][]classify.Rule{
		"alone":     nil,
		"with rule": {classify.Is(gobreaker.ErrOpenState, classify.Verdict{Class: classify.ClassTransient, NotNow: true})},
	} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			open := time.Hour
			if rules != nil {
				open = 200 * time.Millisecond
			}
			breaker := wm.NewCircuitBreaker(gobreaker.Settings{
				Timeout: open, ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= 2 }})
			failing := breaker.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("down") })
			for range 2 { // then it is open
				_, _ = failing(message.NewMessage("", nil))
			}
			ch := b.Channel(func(c *spillway.Config) { c.Classify.Rules = rules })
			stop := b.Run(inside(ch, breaker.Middleware), func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
			defer stop()
			b.Publish(message.NewMessage("healthy", nil))
			b.Eventually("it is handled or dead-lettered", func() bool { return len(b.Waiting()) == 1 || len(b.Effects()) == 1 })
			testkit.Equal(t, "the healthy message was dead-lettered", len(b.Waiting()) == 1, (rules == nil))
		})
	}
}

// Deduplicator must go. Inside, it swallows the second attempt: no effect, no letter.
func TestMigratingDeduplicator(t *testing.T) {
	b := shop.New(t, false)
	var runs atomic.Int32
	deduplicator := &wm.Deduplicator{Repository: remembers{}, KeyFactory: func(msg *message.Message) (string, error) { return msg.UUID, nil }}
	acked := make(chan struct{})
	stop := b.Run(inside(b.Channel(func(c *spillway.Config) { c.Idempotency = nil }), deduplicator.Middleware),
		func(msg *message.Message) ([]*message.Message, error) {
			if runs.Add(1) == 1 {
				go func() { <-msg.Acked(); close(acked) }()
				return nil, errors.New("passes with time")
			}
			return nil, b.Apply(msg)
		})
	b.Publish(shop.Numbered(1)...)
	<-acked
	stop()
	if runs.Load() != 1 || len(b.Effects()) != 0 || len(b.Waiting()) != 0 {
		t.Errorf("%d runs, effects %v, %d letters: Deduplicator loses no message any more", runs.Load(), b.Effects(), len(b.Waiting()))
	}
}

// remembers is a Deduplicator's repository that leaves no goroutine behind, as Watermill's own does.
type remembers map[string]bool

func (r remembers) IsDuplicate(_ context.Context, key string) (bool, error) {
	again := r[key]
	r[key] = true
	return again, nil
}

// A handler that always fails, or panics, with a middleware of Watermill's inside. Recoverer hides that an error is a
// panic. InstantAck gives up promise P1: the source is acked before the handler runs; a failure still makes a letter.
// DelayOnError has no effect: each attempt, and the letter, is the message as it arrived. A middleware that measures
// sees each attempt inside, and outside a success.
func TestMigratingFailures(t *testing.T) {
	delays := &wm.DelayOnError{InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 1}
	for name, row := range map[string]struct {
		middleware message.HandlerMiddleware
		panics     bool
		reason     string
		attempts   int
		acked      bool
	}{
		"Recoverer":    {wm.Recoverer, true, classify.ReasonUnknownMaxRetries, 3, false},
		"no Recoverer": {nil, true, classify.ReasonPanic, 1, false},
		"InstantAck":   {wm.InstantAck, false, classify.ReasonUnknownMaxRetries, 3, true},
		"DelayOnError": {delays.Middleware, false, classify.ReasonUnknownMaxRetries, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			var out, in atomic.Int32
			count := func(failures *atomic.Int32) message.HandlerMiddleware {
				return func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						produced, err := h(msg)
						if err != nil {
							failures.Add(1)
						}
						return produced, err
					}
				}
			}
			ch := b.Channel()
			stop := b.Run(func(router *message.Router) {
				outside(ch, count(&out))(router)
				if router.AddMiddleware(count(&in)); row.middleware != nil {
					router.AddMiddleware(row.middleware)
				}
			}, func(msg *message.Message) ([]*message.Message, error) {
				acked := false
				select {
				case <-msg.Acked():
					acked = true
				default:
				}
				testkit.Check(t, acked == row.acked && msg.Metadata.Get(wmdelay.DelayedForKey) == "",
					"acked before its handler: %v, metadata %v", acked, msg.Metadata)
				if row.panics {
					panic("a bug")
				}
				return nil, errors.New("failed")
			})
			b.Publish(shop.Numbered(1)...)
			b.Eventually("it is dead-lettered at once", func() bool { return len(b.Waiting()) == 1 })
			stop()
			failure, original := b.Waiting()[0].Letter.Failure, b.Waiting()[0].Letter.Original
			testkit.Check(t, failure.Reason == row.reason && failure.Attempts == row.attempts, "%+v", failure)
			testkit.Equal(t, "the letter's delay", original.Metadata.Get(wmdelay.DelayedForKey), "")
			testkit.Check(t, out.Load() == 0 && (row.panics || in.Load() == 3),
				"failures counted outside: %d, inside: %d", out.Load(), in.Load())
		})
	}
}

// IgnoreErrors must go. Inside, what the handler wrote commits. A rule discards instead.
func TestMigratingIgnoreErrors(t *testing.T) {
	errCopy := errors.New("a copy")
	for name, middlewares := range map[string][]message.HandlerMiddleware{"with": {wm.NewIgnoreErrors([]error{errCopy}).Middleware}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			ch := b.Channel(func(c *spillway.Config) {
				c.Classify.Rules = []classify.Rule{classify.Is(errCopy, classify.Verdict{Class: classify.ClassDiscard})}
			})
			settled := make(chan struct{})
			stop := b.Run(inside(ch, middlewares...), func(msg *message.Message) ([]*message.Message, error) {
				go func() { <-msg.Acked(); close(settled) }()
				return nil, errors.Join(b.Apply(msg), errCopy)
			})
			b.Publish(shop.Numbered(1)...)
			<-settled
			stop()
			kept := len(b.Effects()) == 1
			testkit.Check(t, kept == (name == "with") && len(b.Waiting()) == 0,
				"effects %v, %d letters", b.Effects(), len(b.Waiting()))
		})
	}
}

// A redrive to a topic of two handlers reaches both. With a receiver the one that succeeded absorbs it.
func TestMigratingRedriveToSeveralHandlers(t *testing.T) {
	for name, receiver := range map[string]bool{"with a receiver": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			ch := b.Channel(func(c *spillway.Config) {
				if !receiver {
					c.Idempotency = nil
				}
			})
			var repaired atomic.Bool
			var audited, billed atomic.Int32
			stop := b.Run(func(router *message.Router) {
				ch.Attach(router)
				router.AddConsumerHandler("audit", "orders", shop.StaysOpen(b.Source), func(*message.Message) error { audited.Add(1); return nil })
			}, func(msg *message.Message) ([]*message.Message, error) {
				if !repaired.Load() {
					return nil, classify.Permanent(errors.New("no such customer"))
				}
				billed.Add(1)
				return nil, nil
			})
			b.Publish(shop.Numbered(1)...)
			b.Eventually("one handler succeeds, the other fails", func() bool { return audited.Load() == 1 && len(b.Waiting()) == 1 })
			repaired.Store(true)
			drain(t, b, "orders")
			b.Eventually("the failed handler has it", func() bool { return billed.Load() == 1 })
			if !receiver {
				b.Eventually("and so has the other, again", func() bool { return audited.Load() == 2 })
			}
			stop()
			testkit.Check(t, audited.Load() == map[bool]int32{true: 1, false: 2}[receiver],
				"audited %d times", audited.Load())
		})
	}
}
