package spillway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	wmdelay "github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
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

type orderPlaced struct{ Order string }

// An event that no handler of a group knows is acked and gone with AckOnUnknownEvent, and dead-lettered without.
func TestMigratingUnknownEvent(t *testing.T) {
	for _, ack := range []bool{true, false} {
		b := newBench(t, false)
		handled := make(chan string, 1)
		stop := b.run(func(router *message.Router) {
			b.channel().Attach(router)
			processor, err := cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
				SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return staysOpen{b.source}, nil
				},
				AckOnUnknownEvent: ack, Marshaler: cqrs.JSONMarshaler{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := processor.AddHandlersGroup("group", cqrs.NewGroupEventHandler(func(_ context.Context, event *orderPlaced) error {
				handled <- event.Order
				return nil
			})); err != nil {
				t.Fatal(err)
			}
		}, message.PassthroughHandler)
		unknown, known, broken := event("unknown", "orderCancelled", `{}`), event("known", "spillway_test.orderPlaced", `{"Order":"42"}`), event("broken", "spillway_test.orderPlaced", `{`)
		if err := b.source.Publish("events", unknown); err != nil {
			t.Fatal(err)
		}
		if !ack {
			b.eventually("the unknown event is dead-lettered", func() bool { return len(b.waiting()) == 1 })
		}
		if err := b.source.Publish("events", known, broken); err != nil {
			t.Fatal(err)
		}
		if order := <-handled; order != "42" {
			t.Errorf("handled %q", order)
		}
		b.eventually("the broken one is dead-lettered as invalid", func() bool {
			return slices.ContainsFunc(b.waiting(), func(e letters.Letter) bool { return e.Topic == "events.invalid" })
		})
		stop()
		kept := slices.ContainsFunc(b.waiting(), func(e letters.Letter) bool { return e.Original.UUID == "unknown" })
		if kept == ack {
			t.Errorf("AckOnUnknownEvent %v: dead-lettered %v", ack, kept)
		}
	}
}

func event(id, name, payload string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata.Set("name", name)
	return msg
}

// A command whose handler fails is acked and gone with AckCommandHandlingErrors: it is not retried and not dead-lettered. Without, it is
// both.
func TestMigratingCommandErrors(t *testing.T) {
	for _, ack := range []bool{true, false} {
		b := newBench(t, false)
		runs := make(chan struct{}, 10)
		stop := b.run(func(router *message.Router) {
			b.channel().Attach(router)
			processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
				SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return staysOpen{b.source}, nil
				},
				AckCommandHandlingErrors: ack, Marshaler: cqrs.JSONMarshaler{}, Logger: watermill.NopLogger{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := processor.AddHandlers(cqrs.NewCommandHandler("place", func(context.Context, *orderPlaced) error {
				runs <- struct{}{}
				return errors.New("failed")
			})); err != nil {
				t.Fatal(err)
			}
		}, message.PassthroughHandler)
		if err := b.source.Publish("commands", event("command", "spillway_test.orderPlaced", `{"Order":"42"}`)); err != nil {
			t.Fatal(err)
		}
		<-runs
		if !ack {
			b.eventually("it is dead-lettered", func() bool { return len(b.waiting()) == 1 })
		}
		stop()
		if more := len(runs); ack && (more != 0 || len(b.waiting()) != 0) || !ack && more != 2 {
			t.Errorf("AckCommandHandlingErrors %v: %d more runs, %d letters", ack, more, len(b.waiting()))
		}
	}
}

// docs/migrating.md names the test of each statement, and each of these tests is named.
func TestMigratingStatementsAreTested(t *testing.T) {
	page := read(t, "docs/migrating.md")
	for _, file := range []string{"migrating_test.go", "migrating_components_test.go"} {
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
