package breaker_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// scoped is simulated, for a breaker whose scopes are what the ids have before a slash. The scopes whose names begin
// with bad are unavailable.
func scoped(t *testing.T, test func(t *testing.T, s *sim, asked *atomic.Int64)) {
	var asked atomic.Int64
	simulated(t, breaker.Config{Scope: func(msg *message.Message) string {
		asked.Add(1)
		scope, _, _ := strings.Cut(msg.UUID, "/")
		return scope
	}}, func(t *testing.T, s *sim) { test(t, s, &asked) })
}

// Feature R12: a scope fails alone. Messages of other scopes pass. Scopes beyond the bound share one state.
func TestScopes(t *testing.T) {
	scoped(t, func(t *testing.T, s *sim, _ *atomic.Int64) {
		s.service.set(unavailableFor("bad"))
		h := s.handler(t)
		var all sync.WaitGroup
		fail := func(scope string) {
			for i := range 3 {
				all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint(scope, "/", i)) })
			}
			time.Sleep(time.Second)
		}
		for i := range 100 {
			fail(fmt.Sprintf("bad %02d", i))
		}
		began := time.Now()
		s.deliver(t.Context(), h, "good")
		health := s.breaker.Health()
		testkit.Check(t, time.Since(began) <= time.Second && len(health) == 100 && health[0].Scope == "bad 00" &&
			health[99].Scope == "bad 99", "after %s: %+v", time.Since(began), health)
		fail("bad c")
		fail("bad d")
		health = s.breaker.Health()
		testkit.Check(t, len(health) == 101 && health[0].Scope == "(others)" && health[0].Waiting >= 5, "%+v", health)
		s.service.fail(nil)
		all.Wait()
		s.checkAllHandled(t, 307)
	})
}

// Feature R12, promise P3: many scopes that failed once leave room for others. In the outage of one scope the others
// pass, and no message of it is dead. When nothing failed for long, Scope is not called.
func TestScopesAreForgotten(t *testing.T) {
	scoped(t, func(t *testing.T, s *sim, asked *atomic.Int64) {
		h := s.handler(t)
		s.service.fail(errBoom)
		for i := range 200 { // each scope has one message, which is dead in the end: no success follows
			s.deliver(t.Context(), h, fmt.Sprintf("tenant%d/message", i))
		}
		s.dead = map[string]error{}
		s.service.set(unavailableFor("bad"))
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint("bad/", i)) })
			all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint("healthy/", i)) })
		}
		time.Sleep(10 * time.Second)
		health := s.breaker.Health()
		testkit.Check(t, len(health) == 1 && health[0].Scope == "bad" &&
			health[0].Waiting >= 19, "%+v", health) // one can be the probe
		synctest.Wait()
		testkit.Equal(t, "of 20 healthy messages were handled in the outage of another tenant", len(s.handled), 20)
		s.service.fail(nil)
		all.Wait()
		s.checkAllHandled(t, 40)

		time.Sleep(365 * 24 * time.Hour)
		asked.Store(0)
		for i := range 10 {
			s.deliver(t.Context(), h, fmt.Sprint("later/", i))
		}
		testkit.Equal(t, "a year later Scope was called for 10 successes", asked.Load(), 0)
	})
}
