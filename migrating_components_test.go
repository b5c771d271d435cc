package spillway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmdelay "github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/fanin"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// The statements of docs/migrating.md about Watermill's components.

// A forwarder runs on a router of its own that a channel protects: what it cannot unwrap is dead-lettered, and the next goes on.
func TestMigratingForwarder(t *testing.T) {
	b := newBench(t, false)
	ch := b.channel(func(c *spillway.Config) { c.Idempotency = nil })
	stop := b.run(func(router *message.Router) {
		ch.Attach(router)
		if _, err := forwarder.NewForwarder(staysOpen{b.source}, b.outs, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: "outbox", Router: router}); err != nil {
			t.Fatal(err)
		}
	}, message.PassthroughHandler)
	defer stop()
	if err := b.source.Publish("outbox", message.NewMessage("no envelope", []byte("?"))); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is dead-lettered", func() bool { return len(b.waiting()) == 1 })
	if topic := b.waiting()[0].Topic; topic != "outbox.invalid" { // its envelope is no JSON
		t.Errorf("it is in %s", topic)
	}
	out := forwarder.NewPublisher(b.source, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	if err := out.Publish("invoices", message.NewMessage("forwarded", nil)); err != nil {
		t.Fatal(err)
	}
	b.eventually("the next is forwarded", func() bool { return slices.Equal(b.outs.ids(), []string{"forwarded"}) })
}

// A message that the forwarder cannot publish is dead-lettered as its envelope: with the envelope's id, in the forwarder's topic. A redrive to that topic
// forwards it again.
func TestMigratingForwarderLetters(t *testing.T) {
	b := newBench(t, false)
	b.outs.setRefuse(func(*message.Message) error { return errors.New("no such topic") })
	stop := b.run(func(router *message.Router) {
		b.channel(func(c *spillway.Config) { c.Idempotency = nil }).Attach(router)
		b.forwarder(t, router)
	}, message.PassthroughHandler)
	defer stop()
	out := forwarder.NewPublisher(b.source, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	if err := out.Publish("invoices", message.NewMessage("invoice", nil)); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is dead-lettered", func() bool { return len(b.waiting()) == 1 })
	if l := b.waiting()[0]; l.Topic != "outbox.dlq" || l.Original.UUID == "invoice" || !strings.Contains(string(l.Original.Payload), `"uuid":"invoice"`) {
		t.Errorf("the letter is %+v", l)
	}
	b.outs.setRefuse(nil)
	if _, err := redrive.Drain(t.Context(), b.letters, b.source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"outbox"}}}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is forwarded", func() bool { return slices.Equal(b.outs.ids(), []string{"invoice"}) })
}

// Letters may go through a forwarder to their topics. A forwarder whose own letters would go through itself does not start: each would come back wrapped once
// more. Without Attach, such a message is given back.
func TestMigratingLettersThroughForwarder(t *testing.T) {
	b := newBench(t, false)
	through := forwarder.NewPublisher(b.source, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	stop := b.run(b.channel(func(c *spillway.Config) { c.Publisher = through }).Attach, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("bad"))
	})
	defer stop()
	forwards := b.run(func(router *message.Router) { b.forwarder(t, router) }, message.PassthroughHandler)
	defer forwards()
	b.publish(numbered(1)...)
	b.eventually("the letter is forwarded", func() bool { return slices.Contains(b.outs.ids(), "id-0000") })

	itself := b.channel(func(c *spillway.Config) { c.Publisher = through })
	router := message.NewDefaultRouter(watermill.NopLogger{})
	itself.Attach(router)
	b.forwarder(t, router)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := router.Run(ctx); err == nil || !strings.Contains(err.Error(), `dead letters of "outbox" would come back`) {
		t.Errorf("Run returned %v", err)
	}
	forwards()

	b.outs.setRefuse(func(*message.Message) error { return errors.New("no such topic") })
	var unplaced atomic.Int32
	for _, fallbacks := range [][]poison.Sink{nil, {{Publisher: b.letters}}} {
		ch := b.channel(func(c *spillway.Config) {
			c.Publisher, c.Idempotency, c.Queue.Fallbacks = through, nil, fallbacks
			c.Queue.Hooks.OnUnplaced = func(context.Context, poison.Letter, error) { unplaced.Add(1) }
		})
		stop := b.run(func(router *message.Router) { b.forwarder(t, router, ch.Middleware) }, message.PassthroughHandler)
		if err := through.Publish("invoices", message.NewMessage("refused", nil)); err != nil {
			t.Fatal(err)
		}
		b.eventually("it is given back, or in the fallback", func() bool { return fallbacks == nil && unplaced.Load() > 1 || len(b.waiting()) == 1 })
		stop()
		if n := len(b.waiting()); n != len(fallbacks) || n == 1 && b.waiting()[0].Topic != "outbox.dlq" {
			t.Errorf("with %d fallbacks: letters %+v", len(fallbacks), b.waiting())
		}
	}
}

// forwarder adds a forwarder from topic outbox to the outputs.
func (b *bench) forwarder(t *testing.T, router *message.Router, middlewares ...message.HandlerMiddleware) {
	t.Helper()
	config := forwarder.Config{ForwarderTopic: "outbox", Router: router, Middlewares: middlewares}
	if _, err := forwarder.NewForwarder(staysOpen{b.source}, b.outs, watermill.NopLogger{}, config); err != nil {
		t.Fatal(err)
	}
}

// A FanIn has a router of its own, which no channel can be attached to: a message that its publisher refuses comes again without end. Handlers that pass messages on
// do the same work, and such a message is dead-lettered.
func TestMigratingFanIn(t *testing.T) {
	for _, fans := range []bool{true, false} {
		b := newBench(t, false)
		b.outs.setRefuse(func(msg *message.Message) error {
			if msg.UUID == "id-0000" {
				return errors.New("refused")
			}
			return nil
		})
		var stop func()
		if fans {
			fan, err := fanin.NewFanIn(staysOpen{b.source}, b.outs, fanin.Config{SourceTopics: []string{"orders"}, TargetTopic: "invoices"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- fan.Run(t.Context()) }()
			<-fan.Running()
			stop = func() {
				if err := errors.Join(fan.Close(), <-done); err != nil {
					t.Error(err)
				}
			}
		} else {
			stop = b.run(b.channel().Attach, message.PassthroughHandler)
		}
		b.publish(numbered(3)...)
		b.eventually("the others are passed on", func() bool { return slices.Equal(b.outs.ids(), []string{"id-0001", "id-0002"}) })
		if fans {
			b.eventually("the refused one comes again and again", func() bool { return len(b.outs.triedIDs()) > 100 })
		} else {
			b.eventually("the refused one is dead-lettered", func() bool { return len(b.waiting()) == 1 })
		}
		stop()
		if n := len(b.waiting()); (n == 0) != fans {
			t.Errorf("fans in %v: %d letters", fans, n)
		}
	}
}

// A persistent gochannel gives each new subscription all messages again. With a receiver they take effect once, and a message that is dead-lettered again
// is the same letter.
func TestMigratingPersistentGoChannel(t *testing.T) {
	b := newBench(t, true)
	b.publish(numbered(4)...)
	for round := range 2 {
		var bad atomic.Int32
		stop := b.run(b.channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "id-0000" {
				bad.Add(1)
				return nil, classify.Permanent(errors.New("bad"))
			}
			return nil, b.apply(msg)
		})
		b.eventually("all are settled", func() bool {
			waiting := b.waiting()
			return len(b.effects()) == 3 && len(waiting) == 1 && waiting[0].Seen == round+1
		})
		stop()
		if bad.Load() != 1 {
			t.Errorf("the bad message was handled %d times in round %d", bad.Load(), round)
		}
	}
	if n := len(b.effects()); n != 3 {
		t.Errorf("%d effects", n)
	}
}

// A requeuer brings a letter back with our failure metadata on it, and without a bound on how often. A redrive handler removes the
// failure and counts.
func TestMigratingRequeuer(t *testing.T) {
	for name, add := range map[string]func(*testing.T, *bench, *message.Router){
		"requeuer": func(t *testing.T, b *bench, router *message.Router) {
			if _, err := requeuer.NewRequeuer(requeuer.Config{
				Subscriber: staysOpen{b.source}, SubscribeTopic: "orders.dlq", Publisher: b.source, Router: router,
				GeneratePublishTopic: func(requeuer.GeneratePublishTopicParams) (string, error) { return "orders", nil },
			}, watermill.NopLogger{}); err != nil {
				t.Fatal(err)
			}
		},
		"redrive": func(t *testing.T, b *bench, router *message.Router) {
			router.AddPlugin(redriving(t, b).Plugin(staysOpen{b.source}, "orders.dlq"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			ch := b.channel(func(c *spillway.Config) { c.Publisher = b.source })
			back := make(chan message.Metadata, 1)
			stop := b.run(func(router *message.Router) { ch.Attach(router); add(t, b, router) }, func(msg *message.Message) ([]*message.Message, error) {
				if msg.Metadata.Get("x-original-topic") == "" {
					return nil, classify.Permanent(errors.New("not yet"))
				}
				back <- msg.Metadata
				return nil, nil
			})
			defer stop()
			b.publish(numbered(1)...)
			metadata := <-back
			if failed := metadata.Get("x-failure-reason") != ""; failed != (name == "requeuer") {
				t.Errorf("it comes back with %v", metadata)
			}
			if count := metadata.Get("x-redrive-count"); (count == "1") != (name == "redrive") {
				t.Errorf("its count of redrives is %q", count)
			}
		})
	}
}

// redriving is a handler that brings letters back to orders at once.
func redriving(t *testing.T, b *bench) *redrive.Handler {
	t.Helper()
	handler, err := redrive.NewHandler(b.source, redrive.HandlerConfig{Park: b.letters, MinWait: -1, Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// Watermill's components/delay writes metadata, which most pub/subs do not heed: the message is handled at once. The channel leaves the
// metadata as they are.
func TestMigratingDelay(t *testing.T) {
	b := newBench(t, false)
	stop := b.run(b.channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata.Get(wmdelay.DelayedForKey) != "1h0m0s" {
			t.Errorf("its metadata are %v", msg.Metadata)
		}
		return nil, b.apply(msg)
	})
	defer stop()
	delayed, err := wmdelay.NewPublisher(b.source, wmdelay.PublisherConfig{AllowNoDelay: true})
	if err != nil {
		t.Fatal(err)
	}
	msg := message.NewMessage("order", nil)
	msg.SetContext(wmdelay.WithContext(context.Background(), wmdelay.For(time.Hour)))
	if err := delayed.Publish("orders", msg); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is handled at once", func() bool { return len(b.effects()) == 1 })
}

// docs/migrating.md names the test of each statement, and each of these tests is named.
func TestMigratingStatementsAreTested(t *testing.T) {
	page := read(t, "docs/migrating.md")
	for _, file := range []string{"migrating_test.go", "migrating_components_test.go", "migrating_cqrs_test.go", "migrating_reply_test.go"} {
		for line := range strings.Lines(read(t, file)) {
			if rest, ok := strings.CutPrefix(line, "func TestMigrating"); ok {
				name, _, _ := strings.Cut("TestMigrating"+rest, "(")
				if name != "TestMigratingStatementsAreTested" && !strings.Contains(page, "`"+name+"`") {
					t.Errorf("docs/migrating.md does not name %s", name)
				}
			}
		}
	}
}
