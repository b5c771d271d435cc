package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/observe"
)

// opens starts n messages that find the downstream away, and returns when the breaker is open and a function that waits
// for them.
func (s *sim) opens(t *testing.T, n int) (wait func()) {
	s.service.fail(errUnavailable)
	h := s.handler(t)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint("held ", i)) })
	}
	for len(s.breaker.Health()) == 0 || s.breaker.Health()[0].State == circuit.Closed {
		time.Sleep(10 * time.Millisecond)
	}
	return all.Wait
}

// Feature R12: a probe that is permanent goes its own way. It neither closes the breaker nor keeps the next message
// from being tried.
func TestPermanentProbe(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		wait := s.opens(t, 10)
		time.Sleep(20 * time.Second)
		s.service.set(func(id string) error {
			if id != "held 9" {
				return classify.Permanent(errBoom)
			}
			return nil
		})
		began := time.Now()
		wait()
		testkit.Check(t, len(s.dead) == 9 && s.handled["held 9"] == 1 && time.Since(began) <= 7*time.Second,
			"%v, %v after %s", s.dead, s.handled, time.Since(began))
	})
}

// Feature R12: without a message nothing happens while the breaker is open. The next message that comes is the probe.
// If none comes for ten minutes, nothing says any more that the downstream is unavailable.
func TestNoMessageWhileOpen(t *testing.T) {
	simulated(t, breaker.Config{MaxHold: time.Second}, func(t *testing.T, s *sim) {
		ctx, cancel := context.WithCancel(t.Context())
		s.service.fail(errUnavailable)
		h := s.handler(t)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() { _, _ = h(newMessage(ctx, fmt.Sprint(i))) })
		}
		time.Sleep(200 * time.Millisecond)
		cancel()
		all.Wait()
		testkit.Require(t, s.breaker.Health()[0].State != circuit.Closed, "%+v", s.breaker.Health())
		time.Sleep(9 * time.Minute)
		calls := s.service.count()
		if _, err := h(newMessage(t.Context(), "next")); !chain.IsAborted(err) || s.service.count() < calls+1 || s.service.count() > calls+5 { // at once, and after waits
			t.Errorf("%v, %d calls", err, s.service.count()-calls)
		}
		testkit.Equal(t, "", len(s.breaker.Health()), 1)
		time.Sleep(11 * time.Minute)
		testkit.Equal(t, "", len(s.breaker.Health()), 0)
		s.service.fail(nil)
		testkit.Is(t, testkit.Err(h(newMessage(t.Context(), "last"))), nil)
	})
}

// Feature R12: a freeze by hand holds messages without a probe until it is lifted by hand, in whatever state the
// breaker was.
func TestFreeze(t *testing.T) {
	for _, handler := range []string{"billing", ""} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var back, on int
			var waited time.Duration
			s := newSim(t, breaker.Config{Hooks: breaker.Hooks{OnWaited: func(ctx context.Context, one time.Duration, requeued bool) {
				mu.Lock()
				defer mu.Unlock()
				if waited += one; requeued {
					back++
				} else {
					on++
				}
				if handler := message.HandlerNameFromCtx(ctx); handler != "billing" || one < 0 {
					t.Errorf("%s, %s", handler, one)
				}
				panic("contained")
			}}})
			wait := s.opens(t, 5)
			s.breaker.Open(handler, "deployment 7")
			time.Sleep(10 * time.Millisecond)
			calls := s.service.count()
			s.service.fail(nil)
			time.Sleep(time.Hour)
			if health := s.breaker.Health(); s.service.count() != calls || health[0].State != circuit.Frozen || health[0].Reason != "deployment 7" {
				t.Errorf("%d calls, %+v", s.service.count()-calls, health)
			}
			s.breaker.Close("shipping") // another
			s.breaker.Close(handler)
			wait()
			s.checkAllHandled(t, 5)
			testkit.Check(t, s.back != 0, "nothing was given back in an hour")
			if back != s.back || on < 5 || waited < 4*time.Hour {
				t.Errorf("OnWaited was called with %d messages that went back, of %d, and %d that went on, after %s in all", back, s.back, on, waited)
			}
		})
	}
}

// Feature R12, promise P3: a message whose context ends while it is held is given back, uncounted. So is one that was
// held for long enough, or whose deadline comes near.
func TestHeldMessageGoesAway(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		wait := s.opens(t, 3)
		h := s.handler(t)
		cancelled, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errBoom)
		defer cancel()
		for want, ctx := range map[time.Duration]context.Context{20 * time.Second: t.Context(), 4 * time.Second: cancelled} {
			began := time.Now()
			_, err := h(newMessage(ctx, "goes away"))
			if f, ok := errs.Find[*classify.Failure](err); !ok || !chain.IsAborted(err) || f.Attempts != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			held := time.Since(began)
			testkit.Check(t, held <= want+time.Second, "held %s", held)
		}
		s.service.fail(nil)
		wait()
	})
}

// Feature R12: a hook or a scope that panics, and a hook that calls the breaker, change nothing.
func TestHooksAreContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := new(testkit.Log)
		var s *sim
		s = newSim(t, breaker.Config{
			Shared: observe.Shared{Logger: logger},
			Scope:  func(*message.Message) string { panic("scope") },
			Hooks: breaker.Hooks{OnChange: func(c breaker.Change) {
				s.breaker.Health()
				if c.To == circuit.Open {
					s.breaker.Open("shipping", "from the hook")
					s.breaker.Close("shipping")
				}
				panic("hook")
			}},
		})
		wait := s.opens(t, 5)
		s.service.fail(nil)
		wait()
		s.checkAllHandled(t, 5)
		if !logger.Has("hook panicked", "hook", "breaker.OnChange") || !logger.Has("hook panicked", "hook", "breaker.Scope") {
			t.Error(logger.Errors())
		}
	})
}

// staged is a part that has a next stage, and takes messages into it.
func (s *sim) staged(t *testing.T, stage *[]string) message.HandlerFunc {
	h := chain.Enter(func(next chain.Handler) chain.Handler {
		return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
			c.EnterStages(hasNext(true))
			out, o := next(c)
			if o.Next == chain.Stage {
				s.mu.Lock()
				defer s.mu.Unlock()
				*stage = append(*stage, c.ID())
				return nil, chain.Outcome{}
			}
			return out, o
		}
	}, chain.StepOf(s.breaker))
	return h(func(msg *message.Message) ([]*message.Message, error) { return s.service.handle(msg) })
}

// Feature R12: a retry-after of errors in a row holds the handler until then.
func TestRetryAfterOfADownstream(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		began := time.Now()
		s.service.set(func(string) error {
			if time.Since(began) < 90*time.Second {
				return classify.Unavailable(errBoom, classify.RetryAfter(90*time.Second-time.Since(began)))
			}
			return nil
		})
		s.consume(t, 5, ids(20))
		s.checkAllHandled(t, 20)
		calls := s.service.count()
		testkit.Check(t, calls <= 20+5+2, "%d calls", calls)
	})
}

// Feature R12: a message of a subscription that can stop taking messages is given back at once, and comes again when a
// probe is due.
func TestValve(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		s.service.fail(errUnavailable)
		time.AfterFunc(time.Minute, func() { s.service.fail(nil) })
		valve := new(gate.Valve)
		h := s.handler(t)
		var longest time.Duration
		for i := range 50 {
			for valve.Wait(t.Context()) {
				began := time.Now()
				_, err := h(newMessage(gate.With(t.Context(), valve), fmt.Sprint(i)))
				longest = max(longest, time.Since(began))
				if err == nil {
					break
				}
				testkit.Require(t, chain.IsAborted(err) && valve.IsShut(), "%v, shut: %t", err, valve.IsShut())
			}
		}
		// jitter halves a wait at most: in a minute there are 5 probes until the waits are 5 s, and 24 then
		if calls := s.service.count(); calls > 50+3+30 || longest > time.Second {
			t.Errorf("%d calls, the longest delivery took %s", calls, longest)
		}
	})
}

// Feature R12: when a probe hangs for 30 seconds another message is tried, also if none waits because the subscription
// was stopped.
func TestProbeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, answer := make(chan struct{}), errUnavailable
		h := newBreaker(t, breaker.Config{}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "hangs" {
				<-release
			}
			return nil, answer
		})
		valve := new(gate.Valve)
		ctx := gate.With(t.Context(), valve)
		_, err := h(newMessage(ctx, "1"))
		testkit.Require(t, chain.IsAborted(err) && valve.Wait(ctx), "%v", err)
		go func() { _, _ = h(newMessage(ctx, "hangs")) }()
		synctest.Wait()
		_, err = h(newMessage(ctx, "1"))
		testkit.Require(t, chain.IsAborted(err) && valve.IsShut(), "%v, shut: %t", err, valve.IsShut())
		answer = nil
		began := time.Now()
		testkit.Require(t, valve.Wait(ctx) && time.Since(began) <= 31*time.Second, "after %s", time.Since(began))
		testkit.Is(t, testkit.Err(h(newMessage(ctx, "1"))), nil)
		close(release)
		synctest.Wait()
	})
}

// Feature R12, R17: on a quiet topic one message that fails with an unknown error, again and again, is no outage. Three
// such messages without a success between them are.
func TestOneMessageIsNoOutage(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		s.service.fail(errBoom)
		h := s.breaker.Middleware(s.service.handle)
		for range 30 {
			_, err := h(newMessage(t.Context(), "poison"))
			testkit.Require(t, errors.Is(err, errBoom) && len(s.changes) == 0, "%v, %+v", err, s.changes)
			time.Sleep(5 * time.Second)
		}
		for _, id := range []string{"1", "2"} {
			go func() { _, _ = h(newMessage(t.Context(), id)) }()
		}
		synctest.Wait()
		testkit.Require(t, len(s.changes) == 1 && s.changes[0].Reason == breaker.ReasonNothing, "%+v", s.changes)
		s.service.fail(nil)
	})
}
