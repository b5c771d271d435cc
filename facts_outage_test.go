package spillway_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Fact, feature R12: Watermill's CircuitBreaker answers with an error while it is open, and its PoisonQueue dead-letters that. So an
// outage of two messages sets aside every message that comes while the breaker is open, also when the downstream is back.
// TestMigratingOutage shows that the breaker does not.
func TestFactWatermillBreakerDeadLettersHealthy(t *testing.T) {
	b, dead := newBench(t, false), &outputs{}
	queue, err := wm.PoisonQueue(dead, "poison")
	if err != nil {
		t.Fatal(err)
	}
	breaker := wm.NewCircuitBreaker(gobreaker.Settings{
		Timeout: time.Hour, ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= 2 }})
	var calls atomic.Int32
	stop := b.run(func(router *message.Router) { router.AddMiddleware(queue, breaker.Middleware) },
		func(msg *message.Message) ([]*message.Message, error) {
			if calls.Add(1) <= 2 {
				return nil, errors.New("the downstream is down")
			}
			return nil, b.apply(msg)
		})
	defer stop()
	b.publish(numbered(20)...)
	b.eventually("all messages ended", func() bool { return len(dead.ids())+len(b.effects()) == 20 })
	if n := len(dead.ids()); n != 20 {
		t.Errorf("%d of 20 are dead letters: Watermill's breaker dead-letters no healthy message any more", n)
	}
}

// Feature R12: the breaker in place of CircuitBreaker. While the downstream is away, messages wait. When it is back, all are
// handled, and none is a dead letter.
func TestMigratingOutage(t *testing.T) {
	b := newBench(t, false)
	var away atomic.Bool
	away.Store(true)
	opened := make(chan struct{}, 100)
	ch := b.channel(func(c *spillway.Config) {
		c.Outage = &breaker.Config{Probe: 2 * time.Millisecond, MaxProbe: 10 * time.Millisecond, OnChange: func(change breaker.Change) {
			if change.To == breaker.Open {
				opened <- struct{}{}
			}
		}}
	})
	stop := b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if away.Load() {
			return nil, fmt.Errorf("call the ledger: %w", syscall.ECONNREFUSED)
		}
		return nil, b.apply(msg)
	})
	defer stop()
	b.publish(numbered(20)...)
	for range 3 { // after probes, too
		<-opened
	}
	if ch.Health().OK || len(b.waiting()) != 0 {
		t.Errorf("%+v, %d letters", ch.Health(), len(b.waiting()))
	}
	away.Store(false)
	b.eventually("all are handled", func() bool { return len(b.effects()) == 20 })
	b.eventually("the guard closes", func() bool { return ch.Health().OK })
	if n := len(b.waiting()); n != 0 {
		t.Errorf("%d letters", n)
	}
}
