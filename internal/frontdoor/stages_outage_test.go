package frontdoor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Features R12, R8, R11: messages that come out of their stage, or out of the delay store, while the downstream is away
// wait in the guard. They go to no other stage and into no dead letter, and each takes effect once when the downstream
// is back.
func TestOutageOfStagedMessages(t *testing.T) {
	for name, inStore := range map[string]bool{"topics": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			var store *delay.Store
			if inStore {
				store = delayStore(t, b.DB)
			}
			var staged, probes, handled atomic.Int64
			ch := b.Channel(b.staged(store), func(c *spillway.Config) {
				c.Breaker = &breaker.Config{Probe: time.Millisecond, MaxProbe: 10 * time.Millisecond, MinMessages: 1000, Doubt: time.Hour}
				c.Retry.Budget = &middleware.Budget{}
				c.Stages.Hooks.OnStage = func(context.Context, stages.Waiting) { staged.Add(1) }
			})
			var away atomic.Bool
			away.Store(true)
			var met sync.Map
			const messages = 12
			defer b.runStaged(ch, func(msg *message.Message) ([]*message.Message, error) {
				_, before := met.LoadOrStore(msg.UUID, true)
				switch {
				case !before:
					return nil, errors.New("of this message")
				case away.Load():
					probes.Add(1)
					return nil, classify.Away(errors.New("the bank is away"))
				}
				handled.Add(1)
				return nil, b.Apply(msg)
			})()
			for i := range messages {
				b.Publish(message.NewMessage(fmt.Sprint(i), nil))
			}
			b.Eventually("all are staged and held, and some are probes", func() bool {
				h := ch.Health()
				return staged.Load() == messages && probes.Load() > 5 && len(h.Handlers) > 0 && h.Handlers[0].Waiting >= messages-1
			})
			away.Store(false)
			b.Eventually("all took effect", func() bool { return len(b.Effects()) == messages })
			if n := handled.Load(); n != messages || staged.Load() != messages || len(b.Waiting()) > 0 {
				t.Errorf("%d are handled, %d staged, %d dead-lettered", n, staged.Load(), len(b.Waiting()))
			}
		})
	}
}
