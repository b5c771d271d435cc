package migrating_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// The statements of docs/migrating.md about Watermill's components.

// What a forwarder cannot unwrap, or publish, is dead-lettered as its envelope. A redrive forwards it again.
func TestMigratingForwarder(t *testing.T) {
	b := shop.New(t, false)
	b.Outs.SetRefuse(func(*message.Message) error { return errors.New("no such topic") })
	stop := b.Run(func(router *message.Router) {
		b.Channel(func(c *spillway.Config) { c.Idempotency = nil }).Attach(router)
		forwards(t, b, router)
	}, message.PassthroughHandler)
	defer stop()
	testkit.NoError(t, b.Source.Publish("outbox", message.NewMessage("no envelope", []byte("?"))))
	b.Eventually("it is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	testkit.Equal(t, "it is in", b.Waiting()[0].DeadLetterTopic, "outbox.invalid") // its envelope is no JSON
	out := forwarder.NewPublisher(b.Source, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	testkit.NoError(t, out.Publish("invoices", message.NewMessage("invoice", nil)))
	envelope := func(l letters.Letter) bool {
		return l.DeadLetterTopic == "outbox.dlq" && l.Original.UUID != "invoice" &&
			strings.Contains(string(l.Original.Payload), `"uuid":"invoice"`)
	}
	b.Eventually("its envelope is dead-lettered", func() bool { return slices.ContainsFunc(b.Waiting(), envelope) })
	b.Outs.SetRefuse(nil)
	drain(t, b, "outbox")
	b.Eventually("it is forwarded", func() bool { return slices.Equal(b.Outs.IDs(), []string{"invoice"}) })
}

// Letters may go through a forwarder, but not its own: it does not start. Without Attach such a message is given back.
func TestMigratingLettersThroughForwarder(t *testing.T) {
	b := shop.New(t, false)
	through := forwarder.NewPublisher(b.Source, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	stop := b.Run(b.Channel(func(c *spillway.Config) { c.Publisher = through }).Attach, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("bad"))
	})
	defer stop()
	forwarding := b.Run(func(router *message.Router) { forwards(t, b, router) }, message.PassthroughHandler)
	defer forwarding()
	b.Publish(shop.Numbered(1)...)
	b.Eventually("the letter is forwarded", func() bool { return slices.Contains(b.Outs.IDs(), "id-0000") })

	itself := b.Channel(func(c *spillway.Config) { c.Publisher = through })
	router := message.NewDefaultRouter(watermill.NopLogger{})
	itself.Attach(router)
	forwards(t, b, router)
	testkit.Says(t, testkit.Starts(t, router), `dead letters of "outbox" would come back`)
	forwarding()

	b.Outs.SetRefuse(func(*message.Message) error { return errors.New("no such topic") })
	var unplaced atomic.Int32
	for _, fallbacks := range [][]poison.Sink{nil, {{Publisher: b.Letters}}} {
		ch := b.Channel(func(c *spillway.Config) {
			c.Publisher, c.Idempotency, c.Queue.Fallbacks = through, nil, fallbacks
			c.Queue.Hooks.OnUnplaced = func(context.Context, poison.Letter, error) { unplaced.Add(1) }
		})
		stop := b.Run(func(router *message.Router) { forwards(t, b, router, ch.Middleware) }, message.PassthroughHandler)
		testkit.NoError(t, through.Publish("invoices", message.NewMessage("refused", nil)))
		b.Eventually("it is given back, or in the fallback", func() bool { return fallbacks == nil && unplaced.Load() > 1 || len(b.Waiting()) == 1 })
		stop()
		n := len(b.Waiting())
		testkit.Check(t, n == len(fallbacks) && (n != 1 || b.Waiting()[0].DeadLetterTopic == "outbox.dlq"),
			"with %d fallbacks: letters %+v", len(fallbacks), b.Waiting())
	}
}

// forwards adds a forwarder from topic outbox to the outputs.
func forwards(t *testing.T, b *shop.Shop, router *message.Router, middlewares ...message.HandlerMiddleware) {
	t.Helper()
	config := forwarder.Config{ForwarderTopic: "outbox", Router: router, Middlewares: middlewares}
	testkit.Must(forwarder.NewForwarder(shop.StaysOpen(b.Source), b.Outs, watermill.NopLogger{}, config))
}

// A persistent gochannel gives each subscription all messages again. With a receiver they take effect once.
func TestMigratingPersistentGoChannel(t *testing.T) {
	b := shop.New(t, true)
	b.Publish(shop.Numbered(4)...)
	for round := range 2 {
		var bad atomic.Int32
		stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "id-0000" {
				bad.Add(1)
				return nil, classify.Permanent(errors.New("bad"))
			}
			return nil, b.Apply(msg)
		})
		b.Eventually("all are settled", func() bool {
			waiting := b.Waiting()
			return len(b.Effects()) == 3 && len(waiting) == 1 && waiting[0].Seen == round+1
		})
		stop()
		testkit.Check(t, bad.Load() == 1, "the bad message was handled %d times in round %d", bad.Load(), round)
	}
	testkit.Equal(t, "effects", len(b.Effects()), 3)
}

// A requeuer brings a letter back with its failure, without a bound. A redrive handler removes it and counts.
func TestMigratingRequeuer(t *testing.T) {
	for name, add := range map[string]func(*testing.T, *shop.Shop, *message.Router){
		"requeuer": func(t *testing.T, b *shop.Shop, router *message.Router) {
			testkit.Must(requeuer.NewRequeuer(requeuer.Config{
				Subscriber: shop.StaysOpen(b.Source), SubscribeTopic: "orders.dlq", Publisher: b.Source, Router: router,
				GeneratePublishTopic: func(requeuer.GeneratePublishTopicParams) (string, error) { return "orders", nil },
			}, watermill.NopLogger{}))
		},
		"redrive": func(t *testing.T, b *shop.Shop, router *message.Router) {
			router.AddPlugin(redriving(t, b).Plugin(shop.StaysOpen(b.Source), "orders.dlq"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := shop.New(t, false)
			ch := b.Channel(func(c *spillway.Config) { c.Publisher = b.Source })
			back := make(chan message.Metadata, 1)
			stop := b.Run(func(router *message.Router) { ch.Attach(router); add(t, b, router) }, func(msg *message.Message) ([]*message.Message, error) {
				if msg.Metadata.Get("x-original-topic") == "" {
					return nil, classify.Permanent(errors.New("not yet"))
				}
				back <- msg.Metadata
				return nil, nil
			})
			defer stop()
			b.Publish(shop.Numbered(1)...)
			metadata := <-back
			testkit.Check(t, (metadata.Get("x-failure-reason") != "") == (name == "requeuer"),
				"it comes back with %v", metadata)
			count := metadata.Get("x-redrive-count")
			testkit.Check(t, (count == "1") == (name == "redrive"), "its count of redrives is %q", count)
		})
	}
}

// drain brings the letters of a topic back.
func drain(t *testing.T, b *shop.Shop, topic string) {
	t.Helper()
	rules := redrive.Rules{Allow: []string{topic}}
	testkit.Must(redrive.Drain(t.Context(), b.Letters, b.Source, redrive.DrainConfig{Rules: rules}))
}

// redriving is a handler that brings letters back to orders at once.
func redriving(t *testing.T, b *shop.Shop) *redrive.Handler {
	t.Helper()
	handler, err := redrive.NewHandler(b.Source, redrive.HandlerConfig{Park: b.Letters, MinWait: -1, Rules: redrive.Rules{Allow: []string{"orders"}}})
	testkit.NoError(t, err)
	return handler
}
