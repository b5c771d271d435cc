package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// scripted is a store whose one lease does what a test says, and which counts what it was asked for.
type scripted struct {
	idempotency.Store // none: in lease mode nothing else is called

	lease, renew      func(ctx context.Context, n int) error
	complete, release func(ctx context.Context, n int) error

	mu    sync.Mutex
	calls map[string]int
	began time.Time // when the lease was asked for
}

func (s *scripted) Consumer(handler string) string { return "shop/" + handler }

func (s *scripted) call(ctx context.Context, name string, f func(context.Context, int) error) error {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[name]++
	n := s.calls[name]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, n)
}

func (s *scripted) n(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

func (s *scripted) Lease(ctx context.Context, _ idempotency.Entry, _ time.Duration) (idempotency.Lease, error) {
	s.began = time.Now()
	if err := s.call(ctx, "lease", s.lease); err != nil {
		return nil, err
	}
	return scriptedLease{s}, nil
}

type scriptedLease struct{ s *scripted }

func (l scriptedLease) Fence() int64 { return 42 }

func (l scriptedLease) Recorded() *idempotency.Record { return nil }

func (l scriptedLease) Renew(ctx context.Context) error {
	return l.s.call(ctx, "renew", l.s.renew)
}

func (l scriptedLease) Complete(ctx context.Context, _ []byte) error {
	return l.s.call(ctx, "complete", l.s.complete)
}

func (l scriptedLease) Release(ctx context.Context) error {
	return l.s.call(ctx, "release", l.s.release)
}

const leaseTime = 30 * time.Second

// scriptedReceiver runs handle once, in a bubble, inside of a retry of three attempts.
func scriptedReceiver(t *testing.T, s *scripted, handle message.HandlerFunc) (attempts, lost int, out []*message.Message, err error) {
	retry, failed := middleware.NewRetry(middleware.RetryConfig{
		Attempts: 3, Hooks: middleware.RetryHooks{OnAttempt: func(context.Context, middleware.Attempt) { attempts++ }},
	})
	testkit.NoError(t, failed)
	r := newReceiver(t, s, idempotency.ReceiverConfig{Lease: leaseTime,
		Hooks: idempotency.Hooks{OnLeaseLost: func(context.Context, idempotency.Key) { lost++ }}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	msg := newMessage("m1")
	msg.SetContext(ctx)
	out, err = chain.EnterParts(retry, r)(handle)(msg)
	testkit.Equal(t, "the message has another context than it came with", msg.Context(), ctx)
	return attempts, lost, out, err
}

func aborted(err error) bool {
	f, ok := errs.Find[*classify.Failure](err)
	return ok && f.Verdict.Class == classify.ClassAborted && errors.Is(err, context.Canceled)
}

var errDown = classify.Transient(errors.New("the database is unavailable"))
