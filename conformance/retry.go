package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// always is a backoff that waits d.
func always(d time.Duration) middleware.Backoff {
	return middleware.Backoff{New: func() backoff.BackOff { return backoff.NewConstantBackOff(d) }}
}

// Feature R1: a handler that fails twice succeeds at its third attempt; one that always fails is tried as often as is
// configured, and no more.
func (b *bench) retries() {
	var flaky, stubborn atomic.Int32
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "flaky" && flaky.Add(1) < 3:
			return nil, errors.New("not yet")
		case msg.UUID == "stubborn":
			stubborn.Add(1)
			return nil, classify.Transient(errNever)
		}
		return nil, b.apply(msg)
	})
	b.ids("flaky", "stubborn", "good")
	b.untilApplied("flaky", "good")
	b.untilPlaced(1)
	if n := stubborn.Load(); n != 3 {
		b.Errorf("tried %d times instead of 3", n)
	}
	l := b.letter(b.dlq())
	if l.Failure.Attempts != 3 || l.Failure.Reason != classify.ReasonTransientMaxRetries {
		b.Errorf("the letter tells of %d attempts and reason %q", l.Failure.Attempts, l.Failure.Reason)
	}
	b.wantOnce("flaky", "good")
}

// Feature R2: every attempt, and every redelivery after the message was requeued, gets what arrived.
func (b *bench) attemptsSeeOriginal() {
	sent := newMessage("original")
	var shut atomic.Bool
	shut.Store(true)
	var mu sync.Mutex
	var seen []*message.Message
	ch := b.channel(func(c *spillway.Config) {
		c.Publisher = refusing{b.dead, shutWhile(&shut)}
		c.Queue.PublishBackoff = time.Millisecond
	})
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, keep(msg))
		ruin(msg)
		return nil, errNever
	})
	b.publish(sent.Copy())
	b.until("it was tried three times in each of three deliveries", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) >= 9
	})
	shut.Store(false)
	b.untilPlaced(1)
	mu.Lock()
	defer mu.Unlock()
	for _, got := range seen {
		b.wantSame("an attempt", got, sent)
	}
	b.wantSame("the letter", b.letter(b.dlq()).Original, sent)
}

// Feature R3: with a deadline on the message's context no wait goes past it: the message is handed over before.
func (b *bench) deadlineRespected() {
	const limit = 10 * time.Second
	var deadline atomic.Pointer[time.Time]
	hooked := make(chan time.Time, 1)
	ch := b.channel(func(c *spillway.Config) {
		c.Retry.Backoff = always(time.Minute)
		c.Retry.MaxWait = time.Hour
		next := c.Queue.Hooks.OnDeadLetter
		c.Queue.Hooks.OnDeadLetter = func(ctx context.Context, l poison.Letter) {
			select {
			case hooked <- time.Now():
			default:
			}
			next(ctx, l)
		}
	})
	router := b.router()
	h := router.AddConsumerHandler(handlerName, b.topic, b.target.Subscriber(b.T, b.group), func(*message.Message) error {
		return errNever
	})
	h.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc { // as a subscriber with an ack deadline would
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithTimeout(msg.Context(), limit)
			defer cancel()
			at, _ := ctx.Deadline()
			deadline.CompareAndSwap(nil, &at)
			msg.SetContext(ctx)
			return next(msg)
		}
	}, ch.Middleware)
	b.initialize(ch)
	b.run(router)
	b.ids("slow")
	b.untilPlaced(1)
	if at := <-hooked; !at.Before(*deadline.Load()) {
		b.Errorf("handed over at %s, after the deadline at %s", at, *deadline.Load())
	}
}

// Feature R4: the next attempt comes no sooner than the error asked for.
func (b *bench) retryAfter() {
	const after = 700 * time.Millisecond
	var mu sync.Mutex
	var at []time.Time
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		if len(at) == 1 {
			return nil, classify.Transient(errors.New("slow down"), classify.RetryAfter(after))
		}
		return nil, b.apply(msg)
	})
	b.ids("limited")
	b.untilApplied("limited")
	if len(at) != 2 || at[1].Sub(at[0]) < after {
		b.Errorf("attempts at %v", at)
	}
}

// Feature R11: messages that need more retries than the budget has wait for it, and are requeued if the wait is long.
// Retries keep to the budget, each message takes effect once, and none is set aside.
func (b *bench) retryBudget() {
	const messages, perSecond = 60, 20
	var retries, waits atomic.Int64
	var first sync.Once
	var began time.Time
	ch := b.channel(func(c *spillway.Config) {
		c.Retry.Budget = &middleware.Budget{Share: -1, PerSecond: perSecond, TTL: time.Second}
		c.Retry.NotNowHold = 150 * time.Millisecond
		c.Retry.Hooks.OnRetry = func(context.Context, middleware.Attempt, time.Duration) {
			first.Do(func() { began = time.Now() })
			retries.Add(1)
		}
		c.Retry.Hooks.OnBudgetSpent = func(context.Context, middleware.BudgetSpent) { waits.Add(1) }
	})
	var failed sync.Map // deliveries
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		if _, again := failed.LoadOrStore(msg, true); !again {
			return nil, errors.New("once in each delivery")
		}
		return nil, b.apply(msg)
	})
	ids := make([]string, messages)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	if n := b.placed.Load() + b.discarded.Load(); n > 0 {
		b.Errorf("%d messages are set aside", n)
	}
	// a slower machine keeps to it anyway
	if took := time.Since(began); waits.Load() == 0 && took < (messages/perSecond-1)*time.Second {
		b.Errorf("%d retries in %s, and the budget was never spent", retries.Load(), took)
	}
	if n, most := retries.Load(), perSecond*(int64(time.Since(began)/time.Second)+2); n < messages || n > most {
		b.Errorf("%d retries, of at most %d in this time", n, most)
	}
}
