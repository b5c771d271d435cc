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
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// Feature I3: a lease is renewed while its handler runs, every third of it, and not after that; a short handler costs
// none.
func TestLeaseRenewal(t *testing.T) {
	for handler, renewals := range map[time.Duration]int{time.Second: 0, 10*leaseTime + time.Second: 30} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
			attempts, lost, _, err := scriptedReceiver(t, s, func(msg *message.Message) ([]*message.Message, error) {
				time.Sleep(handler)
				token, ok := idempotency.Fence(msg.Context())
				testkit.Check(t, ok && token == 42 && idempotency.Tx(msg.Context()) == nil, "%v %v", token, ok)
				return nil, msg.Context().Err()
			})
			time.Sleep(10 * leaseTime)
			if err != nil || attempts != 1 || lost != 0 || s.n("renew") != renewals || s.n("complete") != 1 || s.n("release") != 0 {
				t.Fatal(err, attempts, lost, s.calls)
			}
		})
	}
}

// Feature I3: where the lease cannot be renewed, the handler is cancelled before it is over, and its message put back,
// neither retried nor counted. A renewal that fails for a while is made up for.
func TestLeaseNotRenewed(t *testing.T) {
	for name, test := range map[string]struct {
		renew  func(ctx context.Context, n int) error
		lasts  time.Duration // how long the handler may run; 0 is to its end
		atMost time.Duration
	}{
		"away":               {func(context.Context, int) error { return errDown }, leaseTime / 2, leaseTime},
		"away after a while": {func(_ context.Context, n int) error { return map[bool]error{n > 5: errDown}[true] }, 2 * leaseTime, 8 * leaseTime / 3},
		"away after slow ones": {func(_ context.Context, n int) error {
			time.Sleep(leaseTime / 4) // which does not count: the database's clock may have been read before it
			return map[bool]error{n > 2: errDown}[true]
		}, 3 * leaseTime / 2, 5 * leaseTime / 3},
		"hangs":          {func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, leaseTime / 2, leaseTime},
		"hangs for good": {func(context.Context, int) error { time.Sleep(2 * leaseTime); return nil }, leaseTime / 2, leaseTime},
		"panics":         {func(context.Context, int) error { panic("boom") }, leaseTime / 2, leaseTime},
		"lost":           {func(context.Context, int) error { return idempotency.ErrLeaseLost }, leaseTime / 3, leaseTime/3 + 1},
		"comes back":     {func(_ context.Context, n int) error { return map[bool]error{n%3 != 0: errDown}[true] }, 0, 0},
		"hangs once": {func(ctx context.Context, n int) error {
			return map[bool]func() error{true: func() error { <-ctx.Done(); return ctx.Err() }, false: func() error { return nil }}[n == 1]()
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{renew: test.renew}
				var ran time.Duration
				attempts, lost, _, err := scriptedReceiver(t, s, func(msg *message.Message) ([]*message.Message, error) {
					ctx := msg.Context()
					select {
					case <-ctx.Done():
					case <-time.After(10 * leaseTime):
						return nil, nil
					}
					ran = time.Since(s.began)
					testkit.Is(t, context.Cause(ctx), idempotency.ErrLeaseLost)
					return nil, ctx.Err()
				})
				time.Sleep(10 * leaseTime) // for the request that hangs
				if test.lasts == 0 {
					if err != nil || attempts != 1 || lost != 0 || s.n("complete") != 1 {
						t.Fatal(err, attempts, lost, s.calls)
					}
					return
				}
				testkit.Check(t, ran >= test.lasts && ran < test.atMost, "the handler was cancelled after %v", ran)
				if !aborted(err) || !errors.Is(err, idempotency.ErrLeaseLost) || attempts != 0 || lost != 1 || s.n("lease") != 1 || s.n("complete") != 0 || s.n("release") != 1 {
					t.Fatal(err, attempts, lost, s.calls)
				}
			})
		})
	}
}

// Feature I3: a renewal that is under way when the handler returns ends with the message.
func TestLeaseRenewalEnds(t *testing.T) {
	for _, failure := range []error{nil, errDown} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Time
			s := &scripted{renew: func(ctx context.Context, _ int) error {
				<-ctx.Done()
				ended = time.Now()
				return ctx.Err()
			}}
			r := newReceiver(t, s, idempotency.ReceiverConfig{Lease: leaseTime})
			var returned time.Time
			_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) {
				time.Sleep(leaseTime/3 + time.Second)
				returned = time.Now()
				return nil, failure
			})(newMessage("m1"))
			synctest.Wait()
			if err != failure || !ended.Equal(returned) {
				t.Error(err, ended.Sub(returned))
			}
		})
	}
}

// Feature I3: a lease that took long to win is renewed before the handler runs, and no handler runs under none.
func TestLeaseSlowlyWon(t *testing.T) {
	slow := func(context.Context, int) error { time.Sleep(2 * leaseTime); return nil }
	for name, test := range map[string]struct {
		renew func(context.Context, int) error
		runs  int
	}{
		"renewed":        {nil, 1},
		"too slow":       {slow, 0},
		"cannot":         {func(context.Context, int) error { return errDown }, 0},
		"lost meanwhile": {func(context.Context, int) error { return idempotency.ErrLeaseLost }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{lease: slow, renew: test.renew}
			runs := 0
			attempts, _, _, err := scriptedReceiver(t, s, func(msg *message.Message) ([]*message.Message, error) {
				runs++
				return nil, msg.Context().Err()
			})
			if runs != test.runs || (err == nil) != (runs == 1) || s.n("release") != s.n("lease")-runs {
				t.Error(name, err, runs, s.calls)
			}
			testkit.Check(t, !(name == "lost meanwhile") || attempts == 0 && aborted(err),
				"%v %v %v", name, err, attempts)
		})
	}
}

// Feature I3: a receiver or a retry inside of a lease is known as inside of a transaction; one of the other mode is
// refused.
func TestLeaseNested(t *testing.T) {
	db := newCell(t, onSQLite).db
	store := storeOn(db)
	leases := newReceiver(t, store, idempotency.ReceiverConfig{Lease: time.Minute})
	again := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Lease: time.Minute})
	transactions := newReceiver(t, store, idempotency.ReceiverConfig{})
	retry := testkit.Must(middleware.NewRetry(middleware.RetryConfig{}))
	runs := 0
	h := leases.Middleware(retry.Middleware(again.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		runs++
		if _, ok := idempotency.Fence(msg.Context()); !ok || !chain.ClaimOf(msg.Context()).Holds(msg) || chain.ClaimOf(msg.Context()).Locks(db) {
			t.Error("not as it should be inside of a lease")
		}
		return nil, errDown
	})))
	_, err := h(newMessage("m1"))
	testkit.Require(t, errors.Is(err, errDown) && runs == 1, "%v %v", err, runs)
	never := func(*message.Message) ([]*message.Message, error) { t.Error("the handler ran"); return nil, nil }
	for _, h := range []message.HandlerFunc{leases.Middleware(transactions.Middleware(never)), transactions.Middleware(leases.Middleware(never))} {
		if _, err := h(newMessage("m2")); class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "one receiver") {
			t.Error(err)
		}
	}
}

// Feature I3: a lease that could not be kept is an error at construction.
func TestLeaseConfig(t *testing.T) {
	for _, d := range []time.Duration{-1, 1, time.Second - 1} {
		_, err := idempotency.NewReceiver(&scripted{}, idempotency.ReceiverConfig{Lease: d})
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "ReceiverConfig.Lease is"), "%v %v", d, err)
	}
	newReceiver(t, &scripted{}, idempotency.ReceiverConfig{Lease: time.Second})
	token, ok := idempotency.Fence(context.Background())
	testkit.Check(t, token == 0 && !ok, "%v %v", token, ok)
}
