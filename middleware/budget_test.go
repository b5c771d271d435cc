package middleware_test

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// till is a handler with a budget. A message that is not tried again goes to a stage.
type till struct {
	h     message.HandlerFunc
	fails bool
	calls int
}

func newTill(t testing.TB, budget *middleware.Budget) *till {
	return tillOf(newRetry(t, middleware.RetryConfig{Attempts: 2, Backoff: every(1), Budget: budget}))
}

func tillOf(r *middleware.Retry) *till {
	b := &till{}
	b.h = chain.Enter(staged(true), chain.StepOf(r))(func(*message.Message) ([]*message.Message, error) {
		if b.calls++; b.calls == 1 && b.fails {
			return nil, errBoom
		}
		return nil, nil
	})
	return b
}

// hasNext stands for stages of another handler, of which there is a next one or not.
type hasNext bool

func (hasNext) Has(*chain.Call) bool                         { return false }
func (n hasNext) HasNext(*chain.Call, classify.Verdict) bool { return bool(n) }

// staged stands for stages of which each message has a next one, or not.
func staged(has bool) chain.Step {
	return func(next chain.Handler) chain.Handler {
		return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
			c.EnterStages(hasNext(has))
			return next(c)
		}
	}
}

// handle handles a message that succeeds.
func (b *till) handle(msg *message.Message) {
	b.calls, b.fails = 0, false
	_, _ = b.h(msg)
}

// retries reports whether a message that fails is tried again.
func (b *till) retries(msg *message.Message) bool {
	b.calls, b.fails = 0, true
	_, _ = b.h(msg)
	return b.calls > 1
}

// of returns how many of n messages that fail are tried again.
func (b *till) of(n int, msg *message.Message) (granted int) {
	for range n {
		if b.retries(msg) {
			granted++
		}
	}
	return granted
}

// Feature R11: each TTL has as many further attempts as PerSecond says, without any traffic before too, and the share
// of what was handled in addition.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTill(t, &middleware.Budget{Share: 0.25, PerSecond: 3, TTL: 10 * time.Second})
		for i := range 3 {
			time.Sleep(time.Hour)
			if n := b.of(100, newMessage("1")); n != 30+25 { // what failed was handled too
				t.Errorf("hour %d: %d of 100", i, n)
			}
			for range 300 {
				b.handle(newMessage("1"))
			}
			n := b.of(100, newMessage("1"))
			testkit.Check(t, n == 75+25, "hour %d, after 300 were handled: %d of 100", i, n)
			time.Sleep(10 * time.Second)
			testkit.Check(t, b.of(1, newMessage("1")) == 1, "hour %d: nothing after a TTL", i)
		}
	})
}

// Feature R11: live messages, messages of stages and redriven messages do not spend each other's budget, nor do
// handlers.
func TestBudgetsAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := testkit.Must(middleware.NewBudget(middleware.Budget{Share: -1, PerSecond: 1}))
		for name, row := range map[string]struct {
			budget  *middleware.Budget
			another int // of the other handler's
		}{"each": {&middleware.Budget{Share: -1, PerSecond: 1}, 10}, "shared": {shared, 0}} {
			r := middleware.RetryConfig{Attempts: 2, Backoff: every(1), Budget: row.budget}
			retry := newRetry(t, r)
			on := func(handler string, stage int, redriven bool) int {
				msg := newMessage("1")
				if redriven {
					msg.Metadata.Set(poison.KeyRedriveCount, "1")
				}
				ctx := chain.Within(t.Context(), handler, "orders")
				if stage >= 0 {
					ctx = chain.WithReentry(ctx, &chain.Reentry{Handler: handler, As: handler, Stage: stage})
				}
				msg.SetContext(ctx)
				b := tillOf(retry)
				if stage > 0 { // these withdraw the first attempt too
					return 2 * b.of(5, msg)
				}
				return b.of(12, msg)
			}
			if live, stage, redriven, again := on("billing", -1, false), on("billing", 1, true), on("billing", 0, false), on("billing", -1, true); live != 10 || stage != 10 || redriven != 10 || again != 0 {
				t.Errorf("%s: live %d, of a stage %d, redriven into a stage %d, redriven %d", name, live, stage, redriven, again)
			}
			testkit.Equal(t, name+": another handler", on("shipping", -1, false), row.another)
		}
	})
}

// Feature R11: live messages make room for the retries of messages out of stages, and not the other way round.
func TestBudgetOfStageGrowsWithTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTill(t, &middleware.Budget{Share: 0.5, PerSecond: -1})
		waited := newMessage("1")
		waited.SetContext(chain.WithReentry(t.Context(), &chain.Reentry{Stage: 1}))
		for range 100 {
			b.handle(newMessage("1"))
		}
		if n := b.of(20, waited); n != 20 { // two attempts each
			t.Errorf("%d of 20 messages out of a stage", n)
		}
		if n := b.of(200, newMessage("1")); n != 150 { // of 300 live messages
			t.Errorf("%d live messages", n)
		}
	})
}

// Feature R11: handlers that fail at the same time get no more than the budget has.
func TestBudgetConcurrently(t *testing.T) {
	shared := testkit.Must(middleware.NewBudget(middleware.Budget{Share: -1, PerSecond: 10, TTL: time.Minute}))
	var all sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		b := newTill(t, shared)
		all.Go(func() { granted.Add(int64(b.of(200, newMessage("1")))) })
	}
	all.Wait()
	testkit.Equal(t, "retries of 600", granted.Load(), 600)
}

// Feature R11: what cannot be a budget is an error that names the field.
func TestBudgetConfig(t *testing.T) {
	for field, budget := range map[string]middleware.Budget{
		"Share is NaN":    {Share: math.NaN()},
		"Share is 2000":   {Share: 2000},
		"PerSecond is 2e": {PerSecond: 2e6},
		"TTL is 1ms":      {TTL: time.Millisecond},
		"TTL is 1h0m0s":   {TTL: time.Hour},
		"both negative":   {Share: -1, PerSecond: -1},
	} {
		_, err := middleware.NewBudget(budget)
		_, inRetry := middleware.NewRetry(middleware.RetryConfig{Budget: &budget})
		testkit.Check(t, err != nil && inRetry != nil && strings.Contains(err.Error(), field) &&
			strings.Contains(inRetry.Error(), "RetryConfig.Budget"), "%s: %v, %v", field, err, inRetry)
	}
	testkit.Must(middleware.NewRetry(middleware.RetryConfig{Budget: &middleware.Budget{}}))
}
