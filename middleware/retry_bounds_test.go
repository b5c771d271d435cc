package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// timed runs a handler that always fails with err, in time that does not pass elsewhere, and returns how often it was
// invoked, how long all took, and the error.
func timed(t *testing.T, config middleware.RetryConfig, deadline time.Duration, err error) (calls int, took time.Duration, failure *classify.Failure) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		msg, start := newMessage("1"), time.Now()
		if deadline > 0 {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			msg.SetContext(ctx)
		}
		h, n := failing(1000, err)
		_, got := newRetry(t, config).Middleware(h)(msg)
		calls, took, failure = *n, time.Since(start), failureOf(t, got)
	})
	return calls, took, failure
}

func forever(d time.Duration) middleware.RetryConfig {
	return middleware.RetryConfig{Attempts: 500, Backoff: every(d)}
}

// Feature R3: a retry never waits past the deadline of the message's context, keeps a second free before it, and hands
// over at once when the next wait would not fit.
func TestDeadline(t *testing.T) {
	for _, row := range []struct {
		name           string
		wait, deadline time.Duration
		calls          int
		took           time.Duration
	}{
		{"up to the reserve", 3 * time.Second, 10 * time.Second, 4, 9 * time.Second},
		{"no room at all", 3 * time.Second, 2 * time.Second, 1, 0},
		{"deadline within the reserve", time.Nanosecond, time.Second / 2, 1, 0},
	} {
		calls, took, f := timed(t, forever(row.wait), row.deadline, errBoom)
		testkit.Check(t, calls == row.calls && took == row.took && f.Attempts == calls,
			"%s: %d attempts in %s, want %d in %s; %v", row.name, calls, took, row.calls, row.took, f)
	}
}

// Decision 2: a handler cut off by the deadline has failed an attempt in time; it has not gone away.
func TestDeadlineInTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		msg := newMessage("1")
		msg.SetContext(ctx)
		_, err := newRetry(t, middleware.RetryConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
			<-m.Context().Done()
			return nil, m.Context().Err()
		})(msg)
		f := failureOf(t, err)
		testkit.Require(t, f.Attempts == 1 && f.Verdict.Class == classify.ClassTransient, "got %+v", f)
	})
}

// Feature R1: MaxElapsed bounds the time to the end of the last wait.
func TestMaxElapsed(t *testing.T) {
	for _, row := range []struct {
		limit, took time.Duration
		calls       int
	}{{10 * time.Second, 9 * time.Second, 4}, {9 * time.Second, 9 * time.Second, 4}, {9*time.Second - 1, 6 * time.Second, 3}, {1, 0, 1}} {
		config := forever(3 * time.Second)
		config.MaxElapsed = row.limit
		calls, took, _ := timed(t, config, 0, errBoom)
		testkit.Check(t, calls == row.calls && took == row.took,
			"limit %s: %d attempts in %s, want %d in %s", row.limit, calls, took, row.calls, row.took)
	}
}

// Feature R4: an error's retry-after is the least that is waited; beyond MaxWait the message is handed over at once,
// with the verdict for the part that waits elsewhere.
func TestRetryAfter(t *testing.T) {
	for _, row := range []struct {
		name           string
		after, maxWait time.Duration
		deadline       time.Duration
		calls          int
		took           time.Duration
	}{
		{"longer than the backoff", 7 * time.Second, 0, 0, 3, 14 * time.Second},
		{"shorter than the backoff", time.Millisecond, 0, 0, 3, 2 * time.Second},
		{"negative", -time.Hour, 0, 0, 3, 2 * time.Second},
		{"as long as allowed", 30 * time.Second, 0, 0, 3, time.Minute},
		{"longer than allowed", 30*time.Second + 1, 0, 0, 1, 0},
		{"longer than asked for", 5 * time.Second, 4 * time.Second, 0, 1, 0},
		{"an hour allowed", time.Hour, time.Hour, 0, 3, 2 * time.Hour},
		{"past the deadline", 7 * time.Second, 0, 10 * time.Second, 2, 7 * time.Second},
	} {
		config := middleware.RetryConfig{Attempts: 3, Backoff: every(time.Second), MaxWait: row.maxWait}
		calls, took, f := timed(t, config, row.deadline, classify.Transient(errBoom, classify.RetryAfter(row.after)))
		testkit.Check(t, calls == row.calls && took == row.took && f.Verdict.RetryAfter == max(row.after, 0),
			"%s: %d attempts in %s, verdict %+v", row.name, calls, took, f.Verdict)
	}
}

// strategy is a backoff of one's own: it waits as listed and then stops.
type strategy struct{ waits []time.Duration }

func (s *strategy) Reset() {}

func (s *strategy) NextBackOff() time.Duration {
	if len(s.waits) == 0 {
		return backoff.Stop
	}
	next := s.waits[0]
	s.waits = s.waits[1:]
	return next
}

// Feature R1: a strategy of one's own decides the waits, one per failing message, and backoff.Stop ends the retries.
func TestOwnStrategy(t *testing.T) {
	config := middleware.RetryConfig{Attempts: 500, Backoff: middleware.Backoff{New: func() backoff.BackOff {
		return &strategy{[]time.Duration{time.Second, -time.Hour, 5 * time.Second}}
	}}}
	for range 2 {
		calls, took, _ := timed(t, config, 0, errBoom)
		testkit.Check(t, calls == 4 && took == 6*time.Second, "%d attempts in %s", calls, took)
	}
}

// Feature R3: a wait beyond all time ends no later than a bound says: sums of durations overflow.
func TestEndlessWaitIsBounded(t *testing.T) {
	endless := middleware.Backoff{New: func() backoff.BackOff { return &strategy{[]time.Duration{1<<63 - 1}} }}
	calls, took, _ := timed(t, middleware.RetryConfig{Backoff: endless}, time.Minute, errBoom)
	testkit.Check(t, calls == 1 && took == 0, "deadline: %d attempts in %s", calls, took)
	config := middleware.RetryConfig{Backoff: endless, MaxElapsed: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		msg := newMessage("1")
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(time.Hour, cancel).Stop()
		defer cancel()
		msg.SetContext(ctx)
		h := newRetry(t, config).Middleware(func(*message.Message) ([]*message.Message, error) {
			time.Sleep(time.Nanosecond) // in the bubble: what elapsed is no longer zero
			return nil, errBoom
		})
		start := time.Now()
		_, err := h(msg)
		testkit.Check(t, time.Since(start) <= time.Minute, "MaxElapsed: took %s, %v", time.Since(start), err)
	})
}

// heldFor is a part inside Retry that holds each message before its first attempt, as a breaker does.
func heldFor(d time.Duration) chain.Step {
	return func(next chain.Handler) chain.Handler {
		return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
			if c.Held() == 0 {
				time.Sleep(d)
				c.AddHeld(d)
			}
			return next(c)
		}
	}
}

// Feature R1: MaxElapsed does not count the time in which a breaker held the message.
func TestHeldIsNotElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := forever(time.Second)
		config.MaxElapsed = 10 * time.Second
		h, calls := failing(1000, errBoom)
		_, err := chain.Enter(chain.StepOf(newRetry(t, config)), heldFor(time.Hour))(h)(newMessage("1"))
		f := failureOf(t, err)
		testkit.Check(t, *calls == 11 && f.Attempts == 11, "%d calls, %v", *calls, f)
	})
}

// Feature C6: a message that was held before its handler said "not now" is held no longer for that, or its broker
// redelivers it.
func TestHeldCountsForNotNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h, _ := failing(1000, classify.NotNow(errors.New("locked")))
		_, err := chain.Enter(chain.StepOf(newRetry(t, middleware.RetryConfig{})), heldFor(15*time.Second))(h)(newMessage("1"))
		wantAborted(t, err)
		testkit.Equal(t, "it is held for", time.Since(start), 20*time.Second)
	})
}
