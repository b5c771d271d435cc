package frontdoor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Decision 13: Health shows the channel's own stores that are away, with or without a guard.
func TestHealthShowsStores(t *testing.T) {
	b := newBench(t, true)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{DB: b.DB}))
	move := func(from, to string) {
		t.Helper()
		testkit.Must(b.DB.Exec("ALTER TABLE " + from + " RENAME TO " + to))
	}
	move("spillway_keys", "elsewhere")
	defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })()
	b.Publish(message.NewMessage("1", nil), message.NewMessage("2", nil))
	testkit.Eventually(t, "Health shows the store of keys", func() bool {
		h := ch.Health()
		return !h.OK && len(h.Handlers) == 0 && len(h.Stores) == 1 && strings.Contains(h.Stores[0].Name, "the store of keys") && h.Stores[0].Waiting == 2
	})
	move("elsewhere", "spillway_keys")
	testkit.Eventually(t, "the store is back", func() bool { return ch.Health().OK && len(b.Effects()) == 2 })
}

// Without Config.Breaker there is no guard, and Health has nothing to report.
func TestNoOutageGuard(t *testing.T) {
	b := newBench(t, false)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Logger: watermill.NopLogger{}}))
	if text, err := json.Marshal(ch.Health()); ch.Breaker() != nil || string(text) != `{"ok":true,"handlers":[]}` {
		t.Errorf("%v, %s, %v", ch.Breaker(), text, err)
	}
	if _, err := spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Breaker: &breaker.Config{FailureRate: 2}}); err == nil ||
		!strings.Contains(err.Error(), "Config.FailureRate is 2") {
		t.Errorf("%v", err)
	}
}

// slow is a subscriber whose broker delivers a message again after the time.
type slow struct {
	message.Subscriber
	redelivers time.Duration
}

func (s slow) RedeliveryTime() time.Duration { return s.redelivers }

// Feature R12: the guard holds a message for no longer than fits what its subscriber says, through the router's
// decorators. A MaxHold that is longer is cut, and the log says so.
func TestHoldFitsSubscriber(t *testing.T) {
	b, log := newBench(t, true), &testkit.Log{}
	ch, err := spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Logger: log, Breaker: &breaker.Config{MaxHold: time.Hour}})
	testkit.NoError(t, err)
	var deliveries atomic.Int64
	attach := func(router *message.Router) {
		ch.Attach(router)
		router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(*message.Message) { deliveries.Add(1) }))
		router.AddConsumerHandler("shipping", "parcels", slow{shop.StaysOpen(b.Source), 200 * time.Millisecond}, func(*message.Message) error {
			return classify.Away(errors.New("the carrier is away"))
		})
	}
	defer b.Run(attach, func(*message.Message) ([]*message.Message, error) { return nil, nil })()
	testkit.NoError(t, b.Source.Publish("parcels", message.NewMessage("1", nil)))
	testkit.Eventually(t, "it is given back, again and again", func() bool { return deliveries.Load() > 3 })
	testkit.Check(t, log.Has("hold is too long for the broker", "config", "Config.Breaker.MaxHold"),
		"the log does not say that MaxHold is cut")
}

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
