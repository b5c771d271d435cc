package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
)

// Features R1, D13: the handler is invoked until it succeeds or the attempts are used up, whatever the numbers, and the
// error tells the story: attempts, first and last failure, history.
func TestAttemptsProperty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
			attempts, fails := rapid.IntRange(1, 15).Draw(rt, "attempts"), rapid.IntRange(0, 20).Draw(rt, "fails")
			h, calls := failing(fails, errBoom)
			start, r := time.Now(), newRetry(t, middleware.RetryConfig{Attempts: attempts, Backoff: every(time.Second)})
			out, err := r.Middleware(func(m *message.Message) ([]*message.Message, error) {
				_, err := h(m)
				return []*message.Message{message.NewMessage(fmt.Sprint(*calls), nil)}, err
			})(newMessage("1"))
			testkit.Require(rt, *calls == min(attempts, fails+1) && (err == nil) == (fails < attempts),
				"%d invocations, error %v", *calls, err)
			testkit.Require(rt, (err == nil) == (len(out) == 1 && out[0].UUID == fmt.Sprint(*calls)), "outputs %v", out)
			took := time.Duration(*calls-1) * time.Second
			testkit.Require(rt, time.Since(start) == took, "it took %s, want %s", time.Since(start), took)
			if err == nil {
				return
			}
			f := failureOf(t, err)
			testkit.Require(rt, f.Attempts == attempts && f.First.Equal(start) && f.Last.Equal(time.Now()) &&
				len(f.History) == min(attempts, 10), "the story is %+v", f)
			for i, a := range f.History {
				at := f.Last.Add(-time.Duration(len(f.History)-1-i) * time.Second)
				testkit.Require(rt, a.At.Equal(at) && a.Error == "boom" && a.Class == classify.ClassUnknown,
					"history %d is %+v", i, a)
			}
		})
	})
}

// Feature R2, promise P2: each attempt gets the message as it arrived, and so does the middleware after the last.
func TestEachAttemptGetsTheMessageAsItArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		msg := newMessage("1")
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "as it arrived")
		msg.SetContext(ctx)
		bytes := &msg.Payload[0]
		attempts := 0
		_, err := newRetry(t, middleware.RetryConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
			attempts++
			if !m.Equals(newMessage("1")) || &m.Payload[0] != bytes || m.Context().Value(key{}) != ctx.Value(key{}) || m.Context().Err() != nil {
				t.Errorf("attempt %d got %q %v %q, context %v", attempts, m.UUID, m.Metadata, m.Payload, m.Context())
			}
			cut, cancel := context.WithCancel(m.Context())
			cancel()
			m.SetContext(cut)
			m.Payload[0], m.UUID, m.Metadata = 'X', "other", nil
			m.Payload = append(m.Payload, "more"...)
			return nil, m.Context().Err()
		})(msg)
		if f := failureOf(t, err); f.Attempts != 5 || attempts != 5 {
			t.Errorf("%d attempts, the failure says %d: an ended context of the handler's own is no shutdown", attempts, f.Attempts)
		}
		testkit.Check(t, msg.Equals(newMessage("1")) && msg.Context() == ctx,
			"left with %q %v %q", msg.UUID, msg.Metadata, msg.Payload)
	})
}

// Feature R1: retries within retries add their attempts up and do not multiply them.
func TestNestedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ outer, inner, calls int }{{3, 3, 3}, {5, 3, 6}, {2, 5, 5}, {4, 1, 4}} {
			h, calls := failing(99, errBoom)
			inner := newRetry(t, middleware.RetryConfig{Attempts: row.inner})
			outer := newRetry(t, middleware.RetryConfig{Attempts: row.outer})
			_, err := outer.Middleware(inner.Middleware(h))(newMessage("1"))
			f := failureOf(t, err)
			testkit.Check(t, *calls == row.calls && f.Attempts == row.calls && len(f.History) == row.calls &&
				f.Err == errBoom, "outer %d, inner %d: %d invocations, %+v", row.outer, row.inner, *calls, f)
		}
	})
}

// Promises P3, P4: an error that tells of no attempts still counts as one here, else the message would be tried without
// end. So does that of a call given back further in, by a context of its own: here the message has not gone away.
func TestFailureWithoutAttemptsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{
			&classify.Failure{Err: errBoom}, &classify.Failure{Err: errBoom, Attempts: -7}, chain.Aborted(errBoom),
		} {
			h, calls := failing(50, err)
			_, got := newRetry(t, middleware.RetryConfig{}).Middleware(h)(newMessage("1"))
			testkit.Check(t, failureOf(t, got).Attempts == 5 && *calls == 5, "%+v: %d invocations, %v", err, *calls, got)
		}
	})
}

// Feature C5: which classes are retried, by default and as PerClass says.
func TestPerClassAttempts(t *testing.T) {
	unsupported := &json.UnsupportedTypeError{Type: reflect.TypeFor[chan int]()}
	for _, row := range []struct {
		name string
		err  error
		own  map[classify.Class]middleware.Policy
		want int
	}{
		{"unknown", errBoom, nil, 5},
		{"transient", context.DeadlineExceeded, nil, 5},
		{"permanent", unsupported, nil, 1},
		{"invalid", classify.Invalid(errBoom), nil, 1},
		{"discard", classify.Discard(errBoom), nil, 1},
		{"permanent on request", classify.Permanent(errBoom), map[classify.Class]middleware.Policy{classify.ClassPermanent: {}}, 5},
		{"permanent, twice", classify.Permanent(errBoom), map[classify.Class]middleware.Policy{classify.ClassPermanent: {Attempts: 2}}, 2},
		{"transient, more", classify.Transient(errBoom), map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: 9}}, 9},
		{"transient, none", classify.Transient(errBoom), map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: 1}}, 1},
		{"another class's", errBoom, map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: 9}}, 5},
	} {
		calls, _, f := timed(t, middleware.RetryConfig{PerClass: row.own}, 0, row.err)
		testkit.Check(t, calls == row.want && f.Attempts == row.want,
			"%s: %d attempts, want %d", row.name, calls, row.want)
	}
}

// Feature C5: each class waits in its own way, goes on with it when it comes again, and attempts of all classes count
// together.
func TestPerClassBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		r := newRetry(t, middleware.RetryConfig{
			Attempts: 4, Backoff: every(time.Second),
			PerClass: map[classify.Class]middleware.Policy{classify.ClassTransient: {
				Attempts: 6, Backoff: middleware.Backoff{New: func() backoff.BackOff {
					return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Minute), backoff.WithMultiplier(2), backoff.WithMaxInterval(time.Hour), backoff.WithRandomizationFactor(0))
				}},
			}},
			Hooks: middleware.RetryHooks{OnRetry: func(_ context.Context, _ middleware.Attempt, pause time.Duration) {
				pauses = append(pauses, pause)
			}},
		})
		errs := []error{classify.Transient(errBoom), classify.Transient(errBoom), errBoom, classify.Transient(errBoom), errBoom}
		calls := 0
		_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, errs[calls-1] })(newMessage("1"))
		want := []time.Duration{time.Minute, 2 * time.Minute, time.Second, 4 * time.Minute}
		f := failureOf(t, err)
		testkit.Require(t, f.Attempts == 5 && f.Verdict.Class == classify.ClassUnknown && len(pauses) == len(want),
			"waits %v, %+v", pauses, f)
		for i := range want {
			testkit.Check(t, pauses[i] == want[i], "waits %v, want %v", pauses, want)
		}
	})
}

// Feature C3: the classifier given is the one that judges.
func TestRetryAsksItsClassifier(t *testing.T) {
	rule := func(error) (classify.Verdict, bool) {
		return classify.Verdict{Class: classify.ClassInvalid, Reason: "rule"}, true
	}
	classifier := testkit.Must(classify.New(classify.Config{Rules: []classify.Rule{rule}}))
	calls, _, f := timed(t, middleware.RetryConfig{Shared: observe.Shared{Classifier: classifier}}, 0, errBoom)
	testkit.Require(t, calls == 1 && f.Verdict.Reason == "rule", "%d attempts, %+v", calls, f.Verdict)
}

// Promise P4: a message for which a part further in needs no further attempt in place is not tried again.
func TestRetryPassesOutcomesOn(t *testing.T) {
	for _, want := range []chain.Next{chain.Stage, chain.DeadLetter, chain.Requeue} {
		calls, got := 0, chain.Done
		inner := func(chain.Handler) chain.Handler {
			return func(*chain.Call) ([]*message.Message, chain.Outcome) {
				calls++
				return nil, chain.Outcome{Next: want, Why: errBoom}
			}
		}
		outer := func(next chain.Handler) chain.Handler {
			return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
				out, o := next(c)
				got = o.Next
				return out, o
			}
		}
		retry := newRetry(t, middleware.RetryConfig{Attempts: 5, Backoff: every(1)})
		_, err := chain.Enter(outer, chain.StepOf(retry), inner)(nil)(newMessage("1"))
		testkit.Check(t, got == want && calls == 1 && err != nil, "%s: %s after %d calls, %v", want, got, calls, err)
	}
}
