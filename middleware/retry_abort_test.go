package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
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

// Promise P3: a message given back further in, by a context between two parts, is not given back further out, where it
// has not gone away: it is a failure there, and bounded.
func TestAbortedFurtherIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		inner := newRetry(t, middleware.RetryConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
			if calls++; calls > 50 {
				return nil, nil
			}
			return nil, m.Context().Err()
		})
		_, err := newRetry(t, middleware.RetryConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(m.Context())
			cancel()
			m.SetContext(ctx)
			return inner(m)
		})(newMessage("1"))
		testkit.Require(t, calls == 5 && err != nil, "%d invocations, error %v", calls, err)
	})
}
