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

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Feature R12: a scope fails alone. Messages of other scopes pass. Scopes beyond the bound share one state.
func TestScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, breaker.Config{Scope: func(msg *message.Message) string {
			scope, _, _ := strings.Cut(msg.UUID, "/")
			return scope
		}})
		s.service.set(func(id string) error {
			if id[0] == 'g' {
				return nil
			}
			return errAway
		})
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
		if health := s.breaker.Health(); time.Since(began) > time.Second || len(health) != 100 || health[0].Scope != "bad 00" || health[99].Scope != "bad 99" {
			t.Errorf("after %s: %+v", time.Since(began), health)
		}
		fail("c")
		fail("d")
		health := s.breaker.Health()
		testkit.Check(t, len(health) == 101 && health[0].Scope == "(others)" && health[0].Waiting >= 5, "%+v", health)
		s.service.fail(nil)
		all.Wait()
		s.checkAllHandled(t, 307)
	})
}

// Feature R12, promise P3: many scopes that failed once leave room for others. In the outage of one scope the others
// pass, and no message of it is dead. When nothing failed for long, Scope is not called.
func TestScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := newSim(t, breaker.Config{Scope: func(msg *message.Message) string {
			asked.Add(1)
			scope, _, _ := strings.Cut(msg.UUID, " ")
			return scope
		}})
		h := s.handler(t)
		s.service.fail(errBoom)
		for i := range 200 { // each scope has one message, which is dead in the end: no success follows
			s.deliver(t.Context(), h, fmt.Sprintf("tenant%d message", i))
		}
		s.dead = map[string]error{}
		s.service.set(func(id string) error {
			if strings.HasPrefix(id, "away") {
				return errAway
			}
			return nil
		})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint("away ", i)) })
			all.Go(func() { s.deliver(t.Context(), h, fmt.Sprint("healthy ", i)) })
		}
		time.Sleep(10 * time.Second)
		if health := s.breaker.Health(); len(health) != 1 || health[0].Scope != "away" || health[0].Waiting < 19 { // one can be the probe
			t.Errorf("%+v", health)
		}
		testkit.Equal(t, "of 20 healthy messages were handled in the outage of another tenant", len(s.handled), 20)
		s.service.fail(nil)
		all.Wait()
		s.checkAllHandled(t, 40)

		time.Sleep(365 * 24 * time.Hour)
		asked.Store(0)
		for i := range 10 {
			s.deliver(t.Context(), h, fmt.Sprint("later ", i))
		}
		testkit.Check(t, asked.Load() == 0, "a year later Scope was called %d times for 10 successes", asked.Load())
	})
}
