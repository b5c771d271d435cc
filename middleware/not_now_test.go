package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

func aborted(err error) bool {
	failure, ok := causes.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// Feature C6: what a handler says that it cannot handle now is handled again, uncounted, or given back after
// NotNowHold; after an hour, over all deliveries, the error is a transient failure with the usual attempts.
func TestNotNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted []middleware.Attempt
		r := testkit.Must(middleware.NewRetry(middleware.RetryConfig{
			Backoff: every(time.Second),
			Hooks:   middleware.RetryHooks{OnAttempt: func(_ context.Context, a middleware.Attempt) { counted = append(counted, a) }},
		}))
		calls, began := 0, time.Now()
		h := r.Middleware(func(*message.Message) ([]*message.Message, error) {
			calls++
			return nil, classify.NotNow(errors.New("tenant is paused"))
		})
		deliveries := 0
		var err error
		for {
			deliveries++
			entered := time.Now()
			_, err = h(newMessage("1"))
			if !aborted(err) {
				break
			}
			held := time.Since(entered)
			testkit.Require(t, held >= 5*time.Second && held <= 20*time.Second, "held for %s", held)
			testkit.Require(t, len(counted) == 0, "counted %v", counted)
		}
		failure, ok := causes.Find[*classify.Failure](err)
		testkit.Check(t, ok && failure.Verdict.Class == classify.ClassTransient && failure.Attempts == 5,
			"at last %v", err)
		took := time.Since(began)
		testkit.Check(t, took >= time.Hour && took <= time.Hour+time.Minute, "after %s", took)
		testkit.Check(t, calls >= 300 && calls <= 900 && deliveries >= 180 && deliveries <= 400,
			"%d calls in %d deliveries", calls, deliveries)
	})
}

// Feature C6, promise R2: a success and another error end it, each attempt gets the message as it arrived, and the
// waits heed the error's retry-after, the deadline and the end of the message's context.
func TestNotNowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testkit.Must(middleware.NewRetry(middleware.RetryConfig{Backoff: every(time.Second)}))
		run := func(ctx context.Context, then error, opts ...classify.Option) (calls int, took time.Duration, err error) {
			began := time.Now()
			msg := newMessage(strconv.FormatInt(began.UnixNano(), 10))
			arrived := msg.Copy()
			msg.SetContext(ctx)
			_, err = r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				calls++
				testkit.Check(t, msg.Equals(arrived), "call %d got %v", calls, msg)
				msg.Metadata.Set("spoiled", "1")
				if calls < 3 {
					return nil, classify.NotNow(errors.New("locked"), opts...)
				}
				return nil, then
			})(msg)
			return calls, time.Since(began), err
		}
		boom := classify.Permanent(errors.New("boom"))
		deadline, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		ends, stop := context.WithCancel(t.Context())
		defer stop()
		for _, row := range []struct {
			ctx         context.Context
			after, took time.Duration
			then        error
			calls       int
		}{
			{deadline, time.Minute, 3 * time.Second, nil, 1},
			{t.Context(), 0, 750 * time.Millisecond, nil, 3},
			{t.Context(), 0, 750 * time.Millisecond, boom, 3},
			{t.Context(), 3 * time.Second, 6 * time.Second, nil, 3},
			{ends, 5 * time.Second, 2 * time.Second, nil, 1},
		} {
			if row.ctx == ends {
				time.AfterFunc(row.took, stop)
			}
			calls, took, err := run(row.ctx, row.then, classify.RetryAfter(row.after))
			testkit.Check(t, calls == row.calls && took == row.took && aborted(err) == (calls == 1) && (calls != 3 ||
				errors.Is(err, row.then)), "%+v: %d calls, after %s: %v", row, calls, took, err)
		}
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack() // it cannot come again
			return nil, classify.NotNow(errors.New("locked"))
		})(newMessage("acked"))
		failure, ok := causes.Find[*classify.Failure](err)
		testkit.Check(t, ok && failure.Attempts == 5 && !aborted(err), "acked: %v", err)
	})
}
