package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
)

// counting counts what hooks are told.
func counting(config middleware.RetryConfig) (middleware.RetryConfig, *int) {
	attempts := new(int)
	config.Hooks.OnAttempt = func(context.Context, middleware.Attempt) { *attempts++ }
	return config, attempts
}

// Promise P3: a message that goes away in the wait between attempts is given back at once, counts nothing, and is no
// failure in the router's log.
func TestAbortedInTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		msg, start := newMessage("1"), time.Now()
		msg.SetContext(ctx)
		time.AfterFunc(time.Second, cancel)
		h, calls := failing(99, classify.Permanent(errBoom))
		config := middleware.RetryConfig{Backoff: every(time.Hour), PerClass: map[classify.Class]middleware.Policy{classify.ClassPermanent: {}}}
		out, err := newRetry(t, config).Middleware(h)(msg)
		wantAborted(t, err)
		testkit.Require(t, time.Since(start) == time.Second && *calls == 1 && out == nil && errors.Is(err, errBoom),
			"%d attempts in %s, error %v", *calls, time.Since(start), err)
	})
}

// Promise P3: a handler that fails because its message goes away has made no attempt.
func TestAbortedInTheHandler(t *testing.T) {
	for _, fails := range []error{nil, errBoom} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			msg := newMessage("1")
			msg.SetContext(ctx)
			config, attempts := counting(middleware.RetryConfig{})
			_, err := newRetry(t, config).Middleware(func(m *message.Message) ([]*message.Message, error) {
				m.Payload[0] = 'X'
				cancel()
				return nil, errors.Join(fails, m.Context().Err())
			})(msg)
			wantAborted(t, err)
			testkit.Require(t, *attempts == 0 && msg.Equals(newMessage("1")),
				"%d attempts were counted; left with %q", *attempts, msg.Payload)
		})
	}
}

// Promise P3: a handler that succeeds although its message goes away has succeeded.
func TestSuccessWhileGoingAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	msg := newMessage("1")
	msg.SetContext(ctx)
	out, err := newRetry(t, middleware.RetryConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
		cancel()
		return []*message.Message{m}, nil
	})(msg)
	testkit.Require(t, err == nil && len(out) == 1, "got %v, %v", out, err)
}

// Decision 2: a handler that acks its message ends its context and has not gone away: it is tried again, to the end.
func TestHandlerAcksAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for fails, want := range map[int]int{2: 3, 99: 5} {
			ctx, cancel := context.WithCancel(t.Context())
			msg, start := newMessage("1"), time.Now()
			msg.SetContext(ctx)
			h, calls := failing(fails, errBoom)
			config, attempts := counting(middleware.RetryConfig{Backoff: every(time.Second)})
			_, err := newRetry(t, config).Middleware(func(m *message.Message) ([]*message.Message, error) {
				m.Ack()
				cancel() // as subscribers do
				return h(m)
			})(msg)
			if *calls != want || *attempts != want || time.Since(start) != time.Duration(want-1)*time.Second {
				t.Errorf("%d failures: %d invocations, %d counted, in %s", fails, *calls, *attempts, time.Since(start))
			}
			if fails == 99 {
				f := failureOf(t, err)
				testkit.Check(t, f.Attempts == 5 && !errors.Is(err, context.Canceled), "got %v", err)
			} else if err != nil {
				t.Error(err)
			}
		}
	})
}

// Decision 2: a handler that nacks its message gives it back itself: trying it here too would make two of it.
func TestHandlerNacksAndFails(t *testing.T) {
	msg := newMessage("1")
	h, calls := failing(99, errBoom)
	config, attempts := counting(middleware.RetryConfig{})
	_, err := newRetry(t, config).Middleware(func(m *message.Message) ([]*message.Message, error) {
		m.Nack()
		return h(m)
	})(msg)
	testkit.Require(t, *calls == 1 && *attempts == 0 && err == errBoom,
		"%d invocations, %d counted, error %v", *calls, *attempts, err)
}

// Features R1, O1: hooks are called for every invocation, successes too, and for every wait, with the right numbers,
// where the attempt was, and how long it took without the time in which a part held the message.
func TestRetryHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified []string
		tell := func(ctx context.Context, what string, a middleware.Attempt) {
			testkit.Check(t, message.HandlerNameFromCtx(ctx) == "billing" && ctx.Err() == nil, "a hook got the context %v", ctx)
			notified = append(notified, fmt.Sprintf("%s %d %s %v, %s %s %s", what, a.Number, a.Verdict.Class, a.Err, a.Topic, a.Handler, a.Elapsed))
		}
		r := newRetry(t, middleware.RetryConfig{
			Attempts: 3, Backoff: every(2 * time.Second),
			Hooks: middleware.RetryHooks{
				OnAttempt: func(ctx context.Context, a middleware.Attempt) { tell(ctx, "attempt", a) },
				OnRetry: func(ctx context.Context, a middleware.Attempt, pause time.Duration) {
					tell(ctx, "retry in "+pause.String()+" after", a)
				},
			},
		})
		h := chain.EnterParts(r, chain.LinkOf(holdsAnHour))(func(m *message.Message) ([]*message.Message, error) {
			time.Sleep(3 * time.Second)
			m.SetContext(context.Background())
			if m.UUID == "good" || len(notified) == 4 && m.UUID == "late" {
				return nil, nil
			}
			return nil, classify.Transient(errBoom)
		})
		const where = ", orders billing 3s"
		history := []string{
			"attempt 1 transient boom" + where, "retry in 2s after 1 transient boom" + where,
			"attempt 2 transient boom" + where, "retry in 2s after 2 transient boom" + where,
		}
		for id, want := range map[string][]string{
			"good": {"attempt 1 unknown <nil>" + where},
			"late": append(slices.Clone(history), "attempt 3 unknown <nil>"+where),
			"bad":  append(slices.Clone(history), "attempt 3 transient boom"+where),
		} {
			notified = nil
			msg := newMessage(id)
			msg.SetContext(chain.Within(t.Context(), "billing", "orders"))
			_, _ = h(msg)
			testkit.Check(t, slices.Equal(notified, want), "%s: told %q, want %q", id, notified, want)
		}
	})
}

// holdsAnHour is a part that holds each message for an hour.
func holdsAnHour(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		time.Sleep(time.Hour)
		c.AddHeld(time.Hour)
		return next(c)
	}
}

// Conventions: a hook that panics is contained and logged; the message goes on.
func TestRetryHookPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		h, calls := failing(2, errBoom)
		_, err := newRetry(t, middleware.RetryConfig{
			Shared: observe.Shared{Logger: logger},
			Hooks: middleware.RetryHooks{
				OnAttempt: func(context.Context, middleware.Attempt) { panic("on attempt") },
				OnRetry:   func(context.Context, middleware.Attempt, time.Duration) { panic("on retry") },
			},
		}).Middleware(h)(newMessage("1"))
		var hooks []string
		for _, line := range logger.Captured()[watermill.ErrorLogLevel] {
			hooks = append(hooks, fmt.Sprint(line.Fields["hook"]))
		}
		slices.Sort(hooks)
		want := []string{"middleware.OnAttempt", "middleware.OnAttempt", "middleware.OnAttempt", "middleware.OnRetry", "middleware.OnRetry"}
		testkit.Require(t, err == nil && *calls == 3 && slices.Equal(hooks, want),
			"%d attempts, error %v, logged %v", *calls, err, hooks)
	})
}

// Conventions: a retry that makes no sense is an error at construction, and names its field.
func TestRetryConstruction(t *testing.T) {
	perClass := func(class classify.Class, p middleware.Policy) middleware.RetryConfig {
		return middleware.RetryConfig{PerClass: map[classify.Class]middleware.Policy{class: p}}
	}
	for want, config := range map[string]middleware.RetryConfig{
		"RetryConfig.Attempts is -1":                                      {Attempts: -1},
		"RetryConfig.MaxElapsed (-1ns)":                                   {MaxElapsed: -1},
		"MaxWait (-1ns)":                                                  {MaxWait: -1},
		"RetryConfig.Backoff: Initial (-1ns)":                             {Backoff: middleware.Backoff{Initial: -1}},
		"RetryConfig.PerClass[aborted]: a message that went away":         perClass(classify.ClassAborted, middleware.Policy{}),
		"RetryConfig.PerClass[invalid].Attempts is -2":                    perClass(classify.ClassInvalid, middleware.Policy{Attempts: -2}),
		"RetryConfig.PerClass[transient].Backoff: Initial (1m0s) must be": perClass(classify.ClassTransient, middleware.Policy{Backoff: middleware.Backoff{Initial: time.Minute, Max: time.Second}}),
	} {
		testkit.Says(t, testkit.Err(middleware.NewRetry(config)), want)
	}
}
