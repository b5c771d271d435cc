package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
)

// one is a budget of one further attempt in ten seconds.
func one() *middleware.Budget { return &middleware.Budget{Share: -1, PerSecond: 0.1} }

// spentBudget returns a retry whose budget was spent this instant, and what is recorded of later messages.
func spentBudget(t *testing.T, config middleware.RetryConfig) (*middleware.Retry, *[]middleware.BudgetSpent) {
	t.Helper()
	seen := new([]middleware.BudgetSpent)
	config.Hooks.OnBudgetSpent = func(_ context.Context, s middleware.BudgetSpent) { *seen = append(*seen, s) }
	if config.Budget == nil {
		config.Budget = one()
	}
	r := newRetry(t, config)
	h, _ := failing(1, errBoom)
	_, err := r.Middleware(h)(newMessage("first"))
	testkit.Require(t, err == nil && len(*seen) <= 0, "%v %v", err, *seen)
	return r, seen
}

// Feature R11: without stages a message waits for the budget, and its attempts go on where they were.
func TestBudgetWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, seen := spentBudget(t, middleware.RetryConfig{Backoff: every(time.Second), MaxElapsed: 5 * time.Second})
		spent := r.Budgets()
		testkit.Check(t, len(spent) == 1 && spent[0] == (middleware.BudgetSpent{Traffic: middleware.TrafficLive}),
			"spent budgets: %+v", spent)
		h, calls := failing(2, errBoom)
		start := time.Now()
		_, err := r.Middleware(h)(newMessage("1"))
		if took := time.Since(start); err != nil || *calls != 3 || took < 18*time.Second || took > 21*time.Second {
			t.Errorf("%d calls in %s: %v", *calls, took, err)
		}
		testkit.Check(t, len(*seen) == 2 && (*seen)[0].Traffic == middleware.TrafficLive && (*seen)[0].Attempts == 1 &&
			(*seen)[1].Attempts == 2 && !(*seen)[0].ToStage, "seen %+v", *seen)
	})
}

// Feature R11: a message whose wait ends is given back, uncounted: at NotNowHold, before its deadline, or with its
// transaction, which is not held open.
func TestBudgetRequeues(t *testing.T) {
	for name, row := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		took time.Duration
	}{
		"hold": {context.WithCancel, 5 * time.Second},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 2 * time.Second},
		"transaction": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithCancel(chain.WithTransaction(ctx, "tx"))
		}, time.Second},
		"shutdown": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(4*time.Second, cancel)
			return ctx, cancel
		}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := spentBudget(t, middleware.RetryConfig{NotNowHold: 5 * time.Second, Backoff: every(time.Millisecond)})
				ctx, cancel := row.ctx(t.Context())
				defer cancel()
				msg := newMessage("1")
				msg.SetContext(ctx)
				h, calls := failing(100, errBoom)
				start := time.Now()
				_, err := r.Middleware(h)(msg)
				wantAborted(t, err)
				took := time.Since(start)
				testkit.Check(t, *calls == 1 && took == row.took, "%d calls in %s", *calls, took)
			})
		})
	}
}

// Feature R11: each message ends. One that comes again and again, with a budget that others use up, is tried again
// after an hour.
func TestBudgetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = time.Hour
		r, _ := spentBudget(t, middleware.RetryConfig{Attempts: 2, Backoff: every(time.Millisecond)})
		over := make(chan struct{})
		defer close(over)
		always := func(*message.Message) ([]*message.Message, error) { return nil, errBoom }
		greedy := chain.Enter(staged(true), chain.StepOf(r))(always)
		go func() { // takes each attempt as it becomes due
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
					_, _ = greedy(newMessage("greedy"))
				}
			}
		}()
		h, calls := failing(1000, errBoom)
		handle := r.Middleware(h)
		start, deliveries := time.Now(), 0
		for ended := false; !ended; deliveries++ {
			_, err := handle(newMessage("1"))
			f, _ := errs.Find[*classify.Failure](err)
			ended = f.Verdict.Class != classify.ClassAborted
			testkit.Require(t, (!ended || f.Attempts == 2) && time.Since(start) <= most+time.Minute,
				"after %s: %v", time.Since(start), f)
		}
		t.Logf("after %s, %d deliveries and %d calls", time.Since(start), deliveries, *calls)
	})
}

// Feature R11: the message of a handler that acked it waits on, since it cannot come again.
func TestBudgetOfAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := spentBudget(t, middleware.RetryConfig{Attempts: 2, Backoff: every(time.Millisecond), NotNowHold: time.Second})
		calls := 0
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			calls++
			msg.Ack()
			return nil, errBoom
		})(newMessage("1"))
		f := failureOf(t, err)
		testkit.Check(t, calls == 2 && f.Attempts == 2, "%d calls, %v", calls, f)
	})
}

// Feature R11: a message that has a next stage goes there at once.
func TestBudgetAndStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, seen := spentBudget(t, middleware.RetryConfig{Attempts: 3, Backoff: every(time.Second)})
		for _, next := range []bool{true, false} {
			h, calls := failing(1, errBoom)
			start := time.Now()
			_, err := chain.Enter(staged(next), chain.StepOf(r))(h)(newMessage("1"))
			took := time.Since(start)
			testkit.Check(t, (!next || failureOf(t, err).Attempts == 1 && took == 0) && (next || err == nil &&
				*calls == 2 && took >= 5*time.Second), "next stage %t: %v after %s", next, err, took)
		}
		testkit.Check(t, len(*seen) == 2 && (*seen)[0].ToStage && !(*seen)[1].ToStage, "seen %+v", *seen)
	})
}

// Feature R11: messages that come out of a stage wait before their attempt while the messages before them fail.
func TestBudgetOfStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetry(t, middleware.RetryConfig{Budget: &middleware.Budget{Share: -1, PerSecond: 1}, Attempts: 1})
		var fails error
		h := r.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, fails })
		handle := func(n int, with error) time.Duration {
			start := time.Now()
			fails = with
			for range n {
				msg := newMessage("1")
				ctx := chain.Within(t.Context(), "billing", "orders")
				msg.SetContext(chain.WithReentry(ctx, &chain.Reentry{Handler: "billing", As: "billing", Stage: 1}))
				_, err := h(msg)
				testkit.Check(t, !chain.IsAborted(err), "%v", err)
			}
			return time.Since(start)
		}
		for name, err := range map[string]error{"success": nil, "permanent": classify.Permanent(errBoom)} {
			testkit.Equal(t, name+": 1000 messages take", handle(1000, err), 0)
		}
		took := handle(100, errBoom)
		testkit.Check(t, took >= 85*time.Second && took <= 95*time.Second,
			"100 failures take %s, at one a second after ten", took)
	})
}

// Feature R11: the log has ten lines for a budget that is spent, and then one a minute, with the number of messages.
func TestBudgetIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		r := newRetry(t, middleware.RetryConfig{Shared: observe.Shared{Logger: log}, Budget: one(), Attempts: 2, Backoff: every(1),
			Hooks: middleware.RetryHooks{OnBudgetSpent: func(context.Context, middleware.BudgetSpent) { panic("hook") }}})
		h := chain.Enter(staged(true), chain.StepOf(r))(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("down") })
		for range 130 {
			_, _ = h(newMessage("1"))
			time.Sleep(time.Second)
		}
		lines := log.Lines(watermill.InfoLogLevel, "budget is spent")
		testkit.Check(t, len(lines) == 12 && testkit.StandsFor(lines) >= 100 && lines[0].Fields["traffic"] == "live" &&
			lines[0].Fields["to"] == "stage", "logged %v", lines)
	})
}
