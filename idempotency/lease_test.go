package idempotency_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/internal/chain"
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

func (l scriptedLease) Fence() int64                  { return 42 }
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
	if failed != nil {
		t.Fatal(failed)
	}
	r := newReceiver(t, s, idempotency.ReceiverConfig{Lease: leaseTime,
		Hooks: idempotency.Hooks{OnLeaseLost: func(context.Context, idempotency.Key) { lost++ }}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	msg := newMessage("m1")
	msg.SetContext(ctx)
	out, err = chain.EnterParts(retry, r)(handle)(msg)
	if msg.Context() != ctx {
		t.Error("the message has another context than it came with")
	}
	return attempts, lost, out, err
}

func aborted(err error) bool {
	f, ok := causes.Find[*classify.Failure](err)
	return ok && f.Verdict.Class == classify.ClassAborted && errors.Is(err, context.Canceled)
}

var errDown = classify.Transient(errors.New("the database is away"))

// Feature I3: a lease is renewed while its handler runs, every third of it, and not after that; a short handler costs none.
func TestLeaseRenewal(t *testing.T) {
	for handler, renewals := range map[time.Duration]int{time.Second: 0, 10*leaseTime + time.Second: 30} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
			attempts, lost, _, err := scriptedReceiver(t, s, func(msg *message.Message) ([]*message.Message, error) {
				time.Sleep(handler)
				if token, ok := idempotency.Fence(msg.Context()); !ok || token != 42 || idempotency.Tx(msg.Context()) != nil {
					t.Error(token, ok)
				}
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
					if !errors.Is(context.Cause(ctx), idempotency.ErrLeaseLost) {
						t.Error(context.Cause(ctx))
					}
					return nil, ctx.Err()
				})
				time.Sleep(10 * leaseTime) // for the request that hangs
				if test.lasts == 0 {
					if err != nil || attempts != 1 || lost != 0 || s.n("complete") != 1 {
						t.Fatal(err, attempts, lost, s.calls)
					}
					return
				}
				if ran < test.lasts || ran >= test.atMost {
					t.Error("the handler was cancelled after ", ran)
				}
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

// Feature I3: a handler that succeeded although its lease was lost is recorded if no other delivery took the key over.
func TestLeaseLostAndSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{renew: func(context.Context, int) error { return errDown }}
		attempts, lost, _, err := scriptedReceiver(t, s, func(*message.Message) ([]*message.Message, error) {
			time.Sleep(2 * leaseTime)
			return nil, nil
		})
		if err != nil || attempts != 1 || lost != 0 || s.n("complete") != 1 || s.n("release") != 0 {
			t.Fatal(err, attempts, lost, s.calls)
		}
	})
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
			if held := name == "lost meanwhile"; held && (attempts != 0 || !aborted(err)) {
				t.Error(name, err, attempts)
			}
		})
	}
}

// Feature I3: what the handler did is recorded as soon as the database can; a message whose record fails has not failed: it
// is put back, neither retried nor counted, and its lease is left. Only a record that is refused is an error.
func TestLeaseComplete(t *testing.T) {
	refuse := func(context.Context, int) error { return classify.Permanent(errors.New("too large")) }
	for name, test := range map[string]struct {
		complete, renew func(context.Context, int) error
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
		"refuses everything": {complete: refuse, renew: refuse, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{complete: test.complete, renew: test.renew}
				attempts, lost, _, err := scriptedReceiver(t, s, func(*message.Message) ([]*message.Message, error) { return nil, nil })
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

// Features I3, I9: an attempt that fails in any way gives its lease up, although the message's context has ended, and its
// error is left as it was.
func TestLeaseReleased(t *testing.T) {
	cause := errors.New("boom")
	for name, fail := range map[string]func(*message.Message) error{
		"error":      func(*message.Message) error { return cause },
		"panic":      func(*message.Message) error { panic(cause) },
		"goexit":     func(*message.Message) error { runtime.Goexit(); return nil },
		"nack":       func(msg *message.Message) error { msg.Nack(); return nil },
		"nil output": func(*message.Message) error { return nil },
	} {
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
				ended := make(chan error, 1)
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						cancel()
						if !errors.Is(msg.Context().Err(), context.Canceled) {
							t.Error("the handler's context lives on")
						}
						return []*message.Message{nil}, fail(msg)
					})(msg)
					ended <- err
				}()
				err, returned := <-ended
				if returned && name == "error" && err != cause || name == "nack" && err != nil || name == "nil output" && class(err) != classify.ClassPermanent {
					t.Error(err)
				}
				if s.n("release") != 1 || s.n("complete") != 0 || msg.Context() != ctx {
					t.Error(s.calls)
				}
				time.Sleep(2 * leaseTime)
				if s.n("renew") != 0 {
					t.Error("renewed after the end")
				}
			})
		})
	}
}

// Feature I3: outputs outlive the handler's context, and carry neither lease nor fence.
func TestLeaseOutputsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	msg := newMessage("m1")
	msg.SetContext(ctx)
	r := newReceiver(t, &scripted{}, idempotency.ReceiverConfig{Lease: leaseTime})
	out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessageWithContext(msg.Context(), "", nil), msg}, nil
	})(msg)
	if err != nil || len(out) != 2 {
		t.Fatal(out, err)
	}
	for _, m := range out {
		if _, ok := idempotency.Fence(m.Context()); ok || chain.ClaimOf(m.Context()) != nil || m.Context().Err() != nil {
			t.Error("an output carries the lease, or is cancelled with it")
		}
	}
	cancel()
	if out[0].Context().Err() == nil {
		t.Error("an output outlives its source")
	}
}

// Feature I3: a receiver or a retry inside of a lease is known as inside of a transaction; one of the other mode is refused.
func TestLeaseNested(t *testing.T) {
	db := openWithEffects(t)
	store := storeOn(db)
	leases := newReceiver(t, store, idempotency.ReceiverConfig{Lease: time.Minute})
	again := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Lease: time.Minute})
	transactions := newReceiver(t, store, idempotency.ReceiverConfig{})
	retry, err := middleware.NewRetry(middleware.RetryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	h := leases.Middleware(retry.Middleware(again.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		runs++
		if _, ok := idempotency.Fence(msg.Context()); !ok || !chain.ClaimOf(msg.Context()).Holds(msg) || chain.ClaimOf(msg.Context()).Locks(db) {
			t.Error("not as it should be inside of a lease")
		}
		return nil, errDown
	})))
	if _, err := h(newMessage("m1")); !errors.Is(err, errDown) || runs != 1 {
		t.Fatal(err, runs)
	}
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
		if _, err := idempotency.NewReceiver(&scripted{}, idempotency.ReceiverConfig{Lease: d}); err == nil || !strings.Contains(err.Error(), "ReceiverConfig.Lease is") {
			t.Error(d, err)
		}
	}
	newReceiver(t, &scripted{}, idempotency.ReceiverConfig{Lease: time.Second})
	if token, ok := idempotency.Fence(context.Background()); token != 0 || ok {
		t.Error(token, ok)
	}
}
