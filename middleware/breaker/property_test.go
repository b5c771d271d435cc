package breaker_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Feature R12: whatever the outage, its begin, its length and the load: no message is dead or lost, only probes call
// the downstream while the breaker is open, and all is handled within 10 seconds of its return, and the time that the
// work takes.
func TestOutageProperty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
			consumers := rapid.IntRange(1, 40).Draw(rt, "consumers")
			n := rapid.IntRange(1, 400).Draw(rt, "messages")
			begins := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "begins in ms")) * time.Millisecond
			lasts := time.Duration(rapid.IntRange(100, 50_000).Draw(rt, "lasts in ms")) * time.Millisecond
			s := newSim(t, breaker.Config{})
			s.takes = time.Duration(rapid.IntRange(0, 100).Draw(rt, "takes in ms")) * time.Millisecond
			from := time.Now().Add(begins)
			until := from.Add(lasts)
			s.service.set(func(string) error {
				if now := time.Now(); !now.Before(from) && now.Before(until) {
					return errUnavailable
				}
				return nil
			})
			s.consume(t, consumers, flow(n, time.Duration(rapid.IntRange(0, 20).Draw(rt, "every ms"))*time.Millisecond))
			s.checkAllHandled(rt, n)
			work := time.Duration(n) * (20*time.Millisecond + s.takes/time.Duration(consumers) + s.takes)
			if late := time.Since(until); late > 10*time.Second+work {
				rt.Errorf("the last message was handled %s after the downstream was back", late)
			}
		})
	})
}

// Feature R12, promise P4: where some messages fail for good, no row of them opens the breaker, and after an outage
// those that waited longest, which are mostly the failing ones, do not keep it open.
func TestManyPoisoned(t *testing.T) {
	for seed, outage := range []time.Duration{0, 8 * time.Second} {
		simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
			const n, every = 8000, 5 * time.Millisecond
			began, bad, bads := time.Now(), map[string]bool{}, 0
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			for i := range n - 2000 {
				if random.Float64() < 0.15 {
					bad[strconv.Itoa(i)] = true
					bads++
				}
			}
			s.service.set(func(id string) error {
				if d := time.Since(began) - 2*time.Second; d > 0 && d < outage {
					return errUnavailable
				}
				if bad[id] {
					return errBoom
				}
				return nil
			})
			s.consume(t, 100, flow(n, every))
			testkit.Check(t, len(s.dead) == bads && len(s.handled) == n-bads,
				"seed %d: of %d bad ones %d are dead, %d handled", seed, bads, len(s.dead), len(s.handled))
			testkit.Check(t, outage != 0 || len(s.changes) == 0, "seed %d: %v", seed, s.changes)
			took := time.Since(began)
			testkit.Check(t, took <= n*every+outage+15*time.Second, "seed %d: all took %s", seed, took)
		})
	}
}

// Feature R12: a downstream that flaps is called less, and hardly a message of it is dead: one that fails while others
// succeed counts.
func TestFlappingDownstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
			up := time.Duration(rapid.IntRange(50, 3000).Draw(rt, "up in ms")) * time.Millisecond
			down := time.Duration(rapid.IntRange(50, 3000).Draw(rt, "down in ms")) * time.Millisecond
			s := newSim(t, breaker.Config{})
			began := time.Now()
			s.service.set(func(string) error {
				if since := time.Since(began); since < 15*time.Second && since%(up+down) >= up {
					return errUnavailable
				}
				return nil
			})
			s.consume(t, 10, flow(400, 5*time.Millisecond))
			if len(s.handled)+len(s.dead) != 400 || len(s.dead) > 30 { // those that fail while others succeed use up attempts
				rt.Errorf("%d handled, %d dead: %v", len(s.handled), len(s.dead), s.changes)
			}
		})
	})
}

// Feature R12: a large share of failures opens the breaker also if nothing succeeded yet, and messages are counted, not
// attempts.
func TestShareOpens(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		s.service.fail(errBoom)
		time.AfterFunc(time.Minute, func() { s.service.fail(nil) })
		s.consume(t, 30, ids(300))
		s.checkAllHandled(t, 300)
		c := s.changes[0]
		testkit.Check(t, c.To == circuit.Open && c.Reason == breaker.ReasonShare && fmt.Sprint(c.Cause) == "boom", "%+v", c)
	})
}
