package breaker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// sim is a handler behind Retry and the breaker, with consumers that have one message in flight each. A message that is
// given back comes again. One whose error leaves Retry is dead.
type sim struct {
	breaker *breaker.Breaker
	service service
	takes   time.Duration // a call

	mu      sync.Mutex
	handled map[string]int
	dead    map[string]error
	back    int // given back
	changes []breaker.Change
	at      []time.Time // of changes
}

func newSim(t testing.TB, config breaker.Config) *sim {
	s := &sim{takes: 10 * time.Millisecond, handled: map[string]int{}, dead: map[string]error{}}
	hook := config.Hooks.OnChange
	config.Hooks.OnChange = func(c breaker.Change) {
		s.mu.Lock()
		s.changes, s.at = append(s.changes, c), append(s.at, time.Now())
		s.mu.Unlock()
		if hook != nil {
			hook(c)
		}
	}
	s.breaker = newBreaker(t, config)
	return s
}

// simulated runs a test with a sim on a clock of its own.
func simulated(t *testing.T, config breaker.Config, test func(*testing.T, *sim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newSim(t, config)) })
}

// handler returns the chain of Retry and the breaker around the service.
func (s *sim) handler(t testing.TB) message.HandlerFunc {
	retry := testkit.Must(middleware.NewRetry(middleware.RetryConfig{}))
	return chain.EnterParts(retry, s.breaker, chain.Recover)(func(msg *message.Message) ([]*message.Message, error) {
		out, err := s.service.handle(msg)
		time.Sleep(s.takes)
		return out, err
	})
}

// consume handles messages until they are used up, with so many consumers.
func (s *sim) consume(t testing.TB, consumers int, ids <-chan string) {
	h := s.handler(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := time.AfterFunc(time.Hour, func() {
		t.Errorf("not within an hour: %d handled, %d dead, %+v", len(s.handled), len(s.dead), s.breaker.Health())
		cancel()
	})
	defer stuck.Stop()
	var all sync.WaitGroup
	for range consumers {
		all.Go(func() {
			for id := range ids {
				s.deliver(ctx, h, id)
			}
		})
	}
	all.Wait()
}

func (s *sim) deliver(ctx context.Context, h message.HandlerFunc, id string) {
	for ctx.Err() == nil {
		_, err := h(newMessage(ctx, id))
		s.mu.Lock()
		switch {
		case err == nil:
			s.handled[id]++
		case chain.IsAborted(err):
			s.back++
			s.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			continue
		default:
			s.dead[id] = err
		}
		s.mu.Unlock()
		return
	}
}

// ids returns n ids.
func ids(n int) <-chan string {
	all := make(chan string, n)
	for i := range n {
		all <- fmt.Sprint(i)
	}
	close(all)
	return all
}

// flow returns n ids, one every so often.
func flow(n int, every time.Duration) <-chan string {
	all := make(chan string)
	go func() {
		defer close(all)
		for i := range n {
			all <- fmt.Sprint(i)
			time.Sleep(every)
		}
	}()
	return all
}

func (s *sim) checkAllHandled(t rapid.TB, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	testkit.Check(t, len(s.handled) == n && len(s.dead) == 0,
		"of %d messages %d were handled, and %d are dead: %v", n, len(s.handled), len(s.dead), s.dead)
}
