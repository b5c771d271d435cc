package gate

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestOpenValveLetsThrough(t *testing.T) {
	var v Valve
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Check(t, v.Wait(t.Context()) && v.Wait(ended) && !v.IsShut() && v.Shuts() == 0,
		"a valve that was never shut does not let messages through")
	v.Shut(nil)
	testkit.Check(t, !v.IsShut() && v.Shuts() == 0, "a nil channel shut the valve")
	testkit.Check(t, Of(t.Context()) == nil, "a context without a valve has one")
}

// A valve that several shut is open when the last of their channels is closed, in whatever order that happens.
func TestValveOpensWhenAllReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, order := range [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
			var v Valve
			var reopen [3]chan struct{}
			for i := range reopen {
				reopen[i] = make(chan struct{})
				v.Shut(reopen[i])
				v.Shut(reopen[i]) // the same outage, found by another message
			}
			testkit.Equal(t, "calls of Shut", v.Shuts(), 6)
			var through atomic.Int32
			for range 10 {
				go func() {
					if v.Wait(t.Context()) {
						through.Add(1)
					}
				}()
			}
			for i, next := range order {
				synctest.Wait()
				testkit.Require(t, through.Load() == 0 && v.IsShut(),
					"some went through with %d of 3 channels closed", i)
				close(reopen[next])
			}
			synctest.Wait()
			testkit.Check(t, through.Load() == 10 && !v.IsShut(), "order %v: not all went through", order)
		}
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Valve
		v.Shut(make(chan struct{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		testkit.Check(t, !v.Wait(ctx) && time.Since(began) == time.Minute, "Wait did not end with its context")
		testkit.Check(t, v.IsShut(), "a waiter that gave up opened the valve")
	})
}

// No waiter sleeps on when all channels are closed, whatever runs at the same time.
func TestNoWakeUpIsLost(t *testing.T) {
	var v Valve
	var shutting, waiting sync.WaitGroup
	for range 8 {
		shutting.Go(func() {
			for range 500 {
				reopen := make(chan struct{})
				v.Shut(reopen)
				if rand.IntN(2) == 0 {
					v.IsShut()
				}
				close(reopen)
			}
		})
		waiting.Go(func() {
			for range 500 {
				testkit.Check(t, v.Wait(t.Context()), "Wait returned false without the end of its context")
			}
		})
	}
	shutting.Wait()
	waiting.Wait()
	testkit.Check(t, !v.IsShut() && len(v.until) == 0, "%d channels are left", len(v.until))
}

// The happy path asks the valve before each message.
func TestOpenValveAllocatesNothing(t *testing.T) {
	var v Valve
	reopen := make(chan struct{})
	v.Shut(reopen)
	close(reopen)
	ctx := t.Context()
	testkit.Equal(t, "allocations", testing.AllocsPerRun(1000, func() { v.Wait(ctx) }), 0)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
