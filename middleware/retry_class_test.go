package middleware_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/settings"
)

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
		if calls, _, f := timed(t, middleware.RetryConfig{PerClass: row.own}, 0, row.err); calls != row.want || f.Attempts != row.want {
			t.Errorf("%s: %d attempts, want %d", row.name, calls, row.want)
		}
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
		if f := failureOf(t, err); f.Attempts != 5 || f.Verdict.Class != classify.ClassUnknown || len(pauses) != len(want) {
			t.Fatalf("waits %v, %+v", pauses, f)
		}
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
	calls, _, f := timed(t, middleware.RetryConfig{Shared: settings.Shared{Classifier: classifier}}, 0, errBoom)
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
