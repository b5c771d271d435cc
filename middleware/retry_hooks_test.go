package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/settings"
)

// Features R1, O1: hooks are told of every invocation, successes too, and of every wait, with the right numbers, where
// the attempt was, and how long it took without the time in which a part held the message. They get the context that the
// message came with.
func TestRetryHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		tell := func(ctx context.Context, what string, a middleware.Attempt) {
			testkit.Check(t, message.HandlerNameFromCtx(ctx) == "billing" && ctx.Err() == nil, "a hook got the context %v", ctx)
			told = append(told, fmt.Sprintf("%s %d %s %v, %s %s %s", what, a.Number, a.Verdict.Class, a.Err, a.Topic, a.Handler, a.Elapsed))
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
			if m.UUID == "good" || len(told) == 4 && m.UUID == "late" {
				return nil, nil
			}
			return nil, classify.Transient(errBoom)
		})
		const where = ", orders billing 3s"
		story := []string{
			"attempt 1 transient boom" + where, "retry in 2s after 1 transient boom" + where,
			"attempt 2 transient boom" + where, "retry in 2s after 2 transient boom" + where,
		}
		for id, want := range map[string][]string{
			"good": {"attempt 1 unknown <nil>" + where},
			"late": append(slices.Clone(story), "attempt 3 unknown <nil>"+where),
			"bad":  append(slices.Clone(story), "attempt 3 transient boom"+where),
		} {
			told = nil
			msg := newMessage(id)
			msg.SetContext(foreign.Within(t.Context(), "billing", "orders"))
			_, _ = h(msg)
			testkit.Check(t, slices.Equal(told, want), "%s: told %q, want %q", id, told, want)
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
			Shared: settings.Shared{Logger: logger},
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
