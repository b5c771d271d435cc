package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func newMessage(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	msg.Metadata.Set("tenant", "acme")
	return msg
}

func newRetry(t testing.TB, config middleware.RetryConfig) *middleware.Retry {
	return testkit.Must(middleware.NewRetry(config))
}

// every is a backoff that always waits d.
func every(d time.Duration) middleware.Backoff {
	return middleware.Backoff{New: func() backoff.BackOff { return backoff.NewConstantBackOff(d) }}
}

func verdict(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

func failureOf(t testing.TB, err error) *classify.Failure {
	t.Helper()
	f, ok := err.(*classify.Failure)
	testkit.Require(t, ok, "got %T (%v), want a *classify.Failure", err, err)
	return f
}

// wantAborted checks that a message was given back without being counted.
func wantAborted(t testing.TB, err error) {
	t.Helper()
	f, ok := errs.Find[*classify.Failure](err)
	testkit.Require(t, ok && f.Verdict.Class == classify.ClassAborted && f.Attempts == 0 &&
		errors.Is(err, context.Canceled), "got %v, want an aborted error that counts nothing", err)
}

// failing returns a handler that fails with err the first n times, and its count of invocations.
func failing(n int, err error) (message.HandlerFunc, *int) {
	calls := new(int)
	return func(*message.Message) ([]*message.Message, error) {
		if *calls++; *calls <= n {
			return nil, err
		}
		return nil, nil
	}, calls
}

func benchMessage(ctx context.Context) *message.Message {
	msg := message.NewMessage("id", make([]byte, 1024))
	for _, key := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(key, "value of "+key)
	}
	msg.SetContext(ctx)
	return msg
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }
