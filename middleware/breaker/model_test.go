package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// model is a breaker whose attempts end when, and how, a test says. It knows what the breaker may do.
type model struct {
	t       *rapid.T
	breaker *breaker.Breaker
	handle  message.HandlerFunc

	mu      sync.Mutex
	next    int
	working map[string]chan error // attempts
	cancels map[string]context.CancelFunc
	gone    map[string]bool // cancelled
	ended   map[string]error
	state   circuit.State // by the changes
	frozen  bool
	begun   int // attempts since it opened
	probes  int
	since   time.Time // it opened
}

func newModel(t *testing.T, rt *rapid.T) *model {
	m := &model{t: rt, state: circuit.Closed, working: map[string]chan error{}, cancels: map[string]context.CancelFunc{}, gone: map[string]bool{}, ended: map[string]error{}}
	m.breaker = newBreaker(t, breaker.Config{MinMessages: 5, Window: 24 * time.Hour, Doubt: 24 * time.Hour, MaxHold: time.Hour, Hooks: breaker.Hooks{OnChange: m.changed}})
	m.handle = m.breaker.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		outcome := make(chan error)
		m.mu.Lock()
		m.working[msg.UUID] = outcome
		m.begun++
		m.mu.Unlock()
		return nil, <-outcome
	})
	return m
}

func (m *model) changed(c breaker.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.To == circuit.Frozen || c.From == circuit.Frozen {
		return
	}
	legal := map[circuit.State][]circuit.State{
		circuit.Closed:   {circuit.Open},
		circuit.Open:     {circuit.HalfOpen, circuit.Ramping},
		circuit.HalfOpen: {circuit.Open, circuit.Ramping},
		circuit.Ramping:  {circuit.Open, circuit.Closed},
	}
	if c.From != m.state || !slices.Contains(legal[c.From], c.To) {
		m.t.Errorf("from %s to %s, after %s", c.From, c.To, m.state)
	}
	if m.state = c.To; c.To == circuit.Open && c.From != circuit.HalfOpen {
		m.begun, m.probes, m.since = 0, 0, time.Now()
	}
	if c.To == circuit.HalfOpen {
		m.probes++
	}
}

func (m *model) open() bool { return m.state == circuit.Open || m.state == circuit.HalfOpen }

// deliver gives the breaker a message.
func (m *model) deliver(t *testing.T) {
	m.mu.Lock()
	m.next++
	id := fmt.Sprint(m.next)
	ctx, cancel := context.WithCancel(t.Context())
	m.cancels[id] = cancel
	m.mu.Unlock()
	go func() {
		_, err := m.handle(newMessage(ctx, id))
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended[id] = err; err == nil {
			m.ended[id] = errSucceeded
		}
		delete(m.cancels, id)
	}()
}

var errSucceeded = errors.New("succeeded")

// finish ends an attempt.
func (m *model) finish(id string, outcome error) {
	m.mu.Lock()
	done, open := m.working[id], m.open()
	delete(m.working, id)
	m.mu.Unlock()
	done <- outcome
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ended[id]; open && (outcome == errUnavailable || outcome == errBoom) && err != nil && !chain.IsAborted(err) && !m.gone[id] {
		m.t.Errorf("%v left the breaker while it was open", err)
	}
}

// cancel ends the context of a message.
func (m *model) cancel() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ids := slices.Sorted(maps.Keys(m.cancels)); len(ids) > 0 {
		id := rapid.SampledFrom(ids).Draw(m.t, "cancelled")
		m.gone[id] = true
		m.cancels[id]()
	}
}

// freeze begins or ends a freeze by hand.
func (m *model) freeze() {
	if m.frozen = !m.frozen; m.frozen {
		m.breaker.Open("billing", "by hand")
		return
	}
	m.breaker.Close("billing")
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.probes = 0, 0
}

// attempts returns the messages in work.
func (m *model) attempts() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.working))
}

// step ends one attempt, if there is one.
func (m *model) step(outcome error) {
	synctest.Wait()
	if ids := m.attempts(); len(ids) > 0 {
		m.finish(rapid.SampledFrom(ids).Draw(m.t, "attempt"), outcome)
	}
}

// check compares the breaker with what it may do.
func (m *model) check() {
	synctest.Wait()
	held := 0
	for _, status := range m.breaker.Health() {
		held += status.Waiting
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	hanging := int(time.Since(m.since) / (30 * time.Second)) // a probe that does not return gets company
	if m.open() && m.begun > m.probes+hanging {
		m.t.Errorf("%d attempts began with %d probes while it was %s", m.begun, m.probes, m.state)
	}
	if m.next != len(m.ended)+len(m.working)+held {
		m.t.Errorf("of %d messages %d ended, %d are in work and %d held", m.next, len(m.ended), len(m.working), held)
	}
}

// left counts the messages that have not ended.
func (m *model) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next - len(m.ended)
}

// Feature R12: whatever happens in whatever order, the breaker changes its state as its documentation says, only probes
// begin while it is open, no failure leaves it then, no message is lost, and all end when the downstream is back.
func TestBreakerAgainstModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
			m := newModel(t, rt)
			for range rapid.IntRange(0, 150).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"deliver", "deliver", "fail", "fail", "fail", "succeed", "other", "wait", "cancel", "freeze"}).Draw(rt, "step") {
				case "deliver":
					m.deliver(t)
				case "fail":
					m.step(rapid.SampledFrom([]error{errUnavailable, errBoom}).Draw(rt, "error"))
				case "succeed":
					m.step(nil)
				case "other":
					m.step(rapid.SampledFrom([]error{classify.Permanent(errBoom), classify.NotNow(errBoom), classify.Discard(errBoom)}).Draw(rt, "error"))
				case "wait":
					time.Sleep(time.Duration(rapid.IntRange(1, 20_000).Draw(rt, "ms")) * time.Millisecond)
				case "cancel":
					m.cancel()
				case "freeze":
					m.freeze()
				}
				m.check()
			}
			m.breaker.Close("billing")
			for range 1000 {
				for synctest.Wait(); len(m.attempts()) > 0; {
					m.step(nil)
				}
				if m.left() == 0 {
					return
				}
				time.Sleep(time.Second)
			}
			rt.Fatalf("of %d messages %d did not end: %+v", m.next, m.left(), m.breaker.Health())
		})
	})
}

// Feature R12: under many goroutines no message is lost, and none is dead. The race detector watches.
func TestConcurrency(t *testing.T) {
	s := newSim(t, breaker.Config{Probe: time.Millisecond, MaxProbe: 5 * time.Millisecond, Window: 100 * time.Millisecond})
	s.takes = 0
	var calls atomic.Int64
	s.service.set(func(string) error {
		if calls.Add(1)%100 < 20 {
			return errUnavailable
		}
		return nil
	})
	go func() {
		for range 10 {
			time.Sleep(20 * time.Millisecond)
			s.breaker.Health()
			s.breaker.Open("billing", "in between")
			s.breaker.Close("billing")
		}
		s.service.fail(nil)
	}()
	s.consume(t, 50, ids(1500))
	testkit.Check(t, len(s.handled)+len(s.dead) == 1500, "%d handled, %d dead", len(s.handled), len(s.dead))
}
