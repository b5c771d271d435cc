package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I3: what the handler did is recorded as soon as the database can; a message whose record fails has not
// failed: it is put back, neither retried nor counted, and its lease is left. Only a record that is refused is an
// error. A handler that succeeds after its lease is recorded, if no other delivery took the key over.
func TestLeaseComplete(t *testing.T) {
	refuse := func(context.Context, int) error { return classify.Permanent(errors.New("too large")) }
	for name, test := range map[string]struct {
		complete, renew func(context.Context, int) error
		lasts           time.Duration // the handler
		done, back      bool
		lost, completes int
	}{
		"comes back": {complete: func(_ context.Context, n int) error { return map[bool]error{n < 6: errDown}[true] }, done: true, completes: 6},
		"away":       {complete: func(context.Context, int) error { return errDown }, back: true},
		"hangs":      {complete: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, back: true},
		"lost":       {complete: func(context.Context, int) error { return idempotency.ErrLeaseLost }, back: true, lost: 1, completes: 1},
		"lost after failing": {complete: func(_ context.Context, n int) error {
			return map[bool]error{true: errDown, false: idempotency.ErrLeaseLost}[n == 1]
		}, back: true, lost: 1, completes: 2},
		"refused":            {complete: refuse, completes: 3},
		"refused once":       {complete: func(ctx context.Context, n int) error { return map[bool]error{n == 1: refuse(ctx, n)}[true] }, done: true, completes: 2},
		"lost and over":      {renew: func(context.Context, int) error { return errDown }, lasts: 2 * leaseTime, done: true, completes: 1},
		"refuses everything": {complete: refuse, renew: refuse, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{complete: test.complete, renew: test.renew}
				attempts, lost, _, err := scriptedReceiver(t, s, func(*message.Message) ([]*message.Message, error) {
					time.Sleep(test.lasts)
					return nil, nil
				})
				if (err == nil) != test.done || aborted(err) != test.back || lost != test.lost || s.n("release") != 0 || s.n("lease") != 1 {
					t.Error(err, lost, s.calls)
				}
				if (attempts == 0) != test.back || test.completes > 0 && s.n("complete") != test.completes {
					t.Error(attempts, s.calls)
				}
				if name == "away" && (time.Since(s.began) < leaseTime*9/10 || time.Since(s.began) > leaseTime+2*time.Second) {
					t.Error("tried for ", time.Since(s.began))
				}
				if name == "refused" && (class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), `key "m1" of consumer "shop/billing"`)) {
					t.Error(err)
				}
			})
		})
	}
}

// Feature I3, promise P3: a message that went away while its success is recorded holds the shutdown up no longer than a
// request may.
func TestLeaseCompleteAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{complete: func(context.Context, int) error { return errDown }}
		r := newReceiver(t, s, idempotency.ReceiverConfig{Lease: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		msg := newMessage("m1")
		msg.SetContext(ctx)
		_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) { cancel(); return nil, nil })(msg)
		if !aborted(err) || time.Since(s.began) > 10*time.Second || s.n("complete") < 2 {
			t.Fatal(err, time.Since(s.began), s.calls)
		}
	})
}

// Features I3, I9: an attempt that fails in any way gives its lease up, although the message's context has ended, and
// its error is left as it was.
func TestLeaseReleased(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{release: func(ctx context.Context, _ int) error {
					if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
						t.Error("the release has no time")
					}
					return errDown
				}}
				r := newReceiver(t, s, idempotency.ReceiverConfig{Lease: leaseTime})
				ctx, cancel := context.WithCancel(t.Context())
				msg := newMessage("m1")
				msg.SetContext(ctx)
				_, err := testkit.Contained(r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					cancel()
					testkit.Is(t, msg.Context().Err(), context.Canceled)
					return fail(msg)
				}), msg)
				testkit.Check(t, (name != "error" || err == errBoom) && (name != "nack" || err == nil) &&
					(name != "nil" || class(err) == classify.ClassPermanent), "%v", err)
				if s.n("release") != 1 || s.n("complete") != 0 || msg.Context() != ctx {
					t.Error(s.calls)
				}
				time.Sleep(2 * leaseTime)
				testkit.Equal(t, "renewed after the end", s.n("renew"), 0)
			})
		})
	}
}
