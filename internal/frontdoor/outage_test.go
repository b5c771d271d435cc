package frontdoor_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Decision 13: Health shows the channel's own stores that are away, with or without a guard.
func TestHealthShowsStores(t *testing.T) {
	b := newBench(t, true)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{DB: b.DB}))
	text := testkit.Must(json.Marshal(ch.Health()))
	testkit.Check(t, ch.Breaker() == nil && string(text) == `{"ok":true,"handlers":[]}`, "%v, %s", ch.Breaker(), text)
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
