package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

//go:noinline
func explode() { panic(context.Canceled) }

// Feature C4, decision 11: a panic becomes a permanent error with no outputs, and with the stack of the function that
// threw it. TestPanicError of classify has what may be thrown.
func TestRecoverPanics(t *testing.T) {
	out, err := middleware.Recover(func(m *message.Message) ([]*message.Message, error) {
		explode()
		return []*message.Message{m}, nil
	})(newMessage("1"))
	var p *classify.PanicError
	testkit.Require(t, errors.As(err, &p) && out == nil, "got outputs %v and error %v", out, err)
	testkit.Check(t, strings.Contains(string(p.Stack), "explode"), "the stack does not show it:\n%s", p.Stack)
	v := verdict(err)
	testkit.Check(t, v.Class == classify.ClassPermanent && v.Reason == classify.ReasonPanic &&
		strings.HasPrefix(err.Error(), "panic: context canceled"), "%q is judged %+v", err, v)
	testkit.Check(t, !errors.Is(err, context.Canceled), "the thrown error shows through: the router would not log it")
}

// Promise P4: a nil output, over which the router would panic on every delivery, is a permanent error that says which.
func TestRecoverNilOutput(t *testing.T) {
	out, err := middleware.Recover(func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m, nil}, nil
	})(newMessage("1"))
	testkit.Require(t, out == nil && verdict(err).Class == classify.ClassPermanent &&
		strings.Contains(fmt.Sprint(err), "number 2 is nil"), "got outputs %v and error %v", out, err)
}

func aborted(err error) bool {
	failure, ok := errs.Find[*classify.Failure](err)
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
		failure, ok := errs.Find[*classify.Failure](err)
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
		failure, ok := errs.Find[*classify.Failure](err)
		testkit.Check(t, ok && failure.Attempts == 5 && !aborted(err), "acked: %v", err)
	})
}
