package migrating_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Feature R12: the breaker in place of CircuitBreaker. While the downstream is away, messages wait. When it is back,
// all are handled, and none is a dead letter.
func TestMigratingOutage(t *testing.T) {
	b := shop.New(t, false)
	var away atomic.Bool
	away.Store(true)
	opened := make(chan struct{}, 100)
	ch := b.Channel(func(c *spillway.Config) {
		c.Breaker = &breaker.Config{Probe: 2 * time.Millisecond, MaxProbe: 10 * time.Millisecond, Hooks: breaker.Hooks{OnChange: func(change breaker.Change) {
			if change.To == breaker.Open {
				opened <- struct{}{}
			}
		}}}
	})
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if away.Load() {
			return nil, fmt.Errorf("call the ledger: %w", syscall.ECONNREFUSED)
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	b.Publish(shop.Numbered(20)...)
	for range 3 { // after probes, too
		<-opened
	}
	if ch.Health().OK || len(b.Waiting()) != 0 {
		t.Errorf("%+v, %d letters", ch.Health(), len(b.Waiting()))
	}
	away.Store(false)
	b.Eventually("all are handled", func() bool { return len(b.Effects()) == 20 })
	b.Eventually("the guard closes", func() bool { return ch.Health().OK })
	if n := len(b.Waiting()); n != 0 {
		t.Errorf("%d letters", n)
	}
}
