package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// The statements of docs/migrating.md about cqrs.

var errTwice = errors.New("not yet")

// commands adds a processor of commands on the source's topic of that name.
func commands(t *testing.T, b *shop.Shop, router *message.Router, change func(*cqrs.CommandProcessorConfig),
	handlers ...cqrs.CommandHandler) {
	t.Helper()
	config := cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return shop.StaysOpen(b.Source), nil
		},
		Marshaler: cqrs.JSONMarshaler{}, Logger: watermill.NopLogger{},
	}
	if change != nil {
		change(&config)
	}
	testkit.NoError(t, testkit.Must(cqrs.NewCommandProcessorWithConfig(router, config)).AddHandlers(handlers...))
}

// group adds a processor of a group of events.
func group(t *testing.T, b *shop.Shop, router *message.Router, ackUnknown bool, handlers ...cqrs.GroupEventHandler) {
	t.Helper()
	processor := testkit.Must(cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
			return "events", nil
		},
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return shop.StaysOpen(b.Source), nil
		},
		AckOnUnknownEvent: ackUnknown, Marshaler: cqrs.JSONMarshaler{},
	}))
	testkit.NoError(t, processor.AddHandlersGroup("group", handlers...))
}

// If the second handler of a group fails, the first runs again. With a receiver both take effect once, or neither.
func TestMigratingGroup(t *testing.T) {
	for _, receives := range []bool{true, false} {
		b := shop.New(t, false)
		stop := b.Run(func(router *message.Router) {
			b.Channel(func(c *spillway.Config) {
				if !receives {
					c.Idempotency = nil
				}
			}).Attach(router)
			var runs atomic.Int32
			group(t, b, router, false,
				cqrs.NewGroupEventHandler(func(ctx context.Context, _ *orderPlaced) error {
					return b.Apply(cqrs.OriginalMessageFromCtx(ctx))
				}),
				cqrs.NewGroupEventHandler(func(context.Context, *orderPlaced) error {
					if runs.Add(1) < 3 {
						return errTwice
					}
					return nil
				}))
		}, message.PassthroughHandler)
		testkit.NoError(t, b.Source.Publish("events", event("event", "migrating_test.orderPlaced", `{"Order":"42"}`)))
		want := map[bool]int{true: 1, false: 3}[receives]
		b.Eventually("the effects are there", func() bool { return len(b.Effects()) == want })
		stop()
		n := len(b.Effects())
		testkit.Check(t, n == want && len(b.Waiting()) == 0,
			"with a receiver %v: %d effects, %d letters", receives, n, len(b.Waiting()))
	}
}

type orderPlaced struct{ Order string }

// An event that no handler of a group knows is acked and gone with AckOnUnknownEvent, and dead-lettered without.
func TestMigratingUnknownEvent(t *testing.T) {
	for _, ack := range []bool{true, false} {
		b := shop.New(t, false)
		handled := make(chan string, 1)
		stop := b.Run(func(router *message.Router) {
			b.Channel().Attach(router)
			group(t, b, router, ack, cqrs.NewGroupEventHandler(func(_ context.Context, event *orderPlaced) error {
				handled <- event.Order
				return nil
			}))
		}, message.PassthroughHandler)
		unknown, known, broken := event("unknown", "orderCancelled", `{}`), event("known", "migrating_test.orderPlaced", `{"Order":"42"}`), event("broken", "migrating_test.orderPlaced", `{`)
		testkit.NoError(t, b.Source.Publish("events", unknown))
		if !ack {
			b.Eventually("the unknown event is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
		}
		testkit.NoError(t, b.Source.Publish("events", known, broken))
		testkit.Equal(t, "handled", <-handled, "42")
		b.Eventually("the broken one is dead-lettered as invalid", func() bool {
			return slices.ContainsFunc(b.Waiting(), func(e letters.Letter) bool { return e.DeadLetterTopic == "events.invalid" })
		})
		stop()
		kept := slices.ContainsFunc(b.Waiting(), func(e letters.Letter) bool {
			return e.Original.UUID == "unknown" && e.DeadLetterTopic == "events.invalid"
		})
		testkit.Check(t, kept != ack, "AckOnUnknownEvent %v: dead-lettered %v", ack, kept)
	}
}

func event(id, name, payload string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata.Set("name", name)
	return msg
}

// A command whose handler fails is retried and dead-lettered. With AckCommandHandlingErrors, or an OnHandle that
// swallows the error, it is acked. The handler finds the receiver's transaction in its context, also through OnHandle.
func TestMigratingCommandErrors(t *testing.T) {
	type config = cqrs.CommandProcessorConfig
	handle := func(params cqrs.CommandProcessorOnHandleParams) error {
		return params.Handler.Handle(params.Message.Context(), params.Command)
	}
	for name, change := range map[string]func(*config){
		"retried":           func(*config) {},
		"retried, OnHandle": func(c *config) { c.OnHandle = handle },
		"acked":             func(c *config) { c.AckCommandHandlingErrors = true },
		"acked, OnHandle": func(c *config) {
			c.OnHandle = func(params cqrs.CommandProcessorOnHandleParams) error { _ = handle(params); return nil }
		},
	} {
		b := shop.New(t, false)
		var runs atomic.Int32
		stop := b.Run(func(router *message.Router) {
			b.Channel().Attach(router)
			commands(t, b, router, change, cqrs.NewCommandHandler("place", func(ctx context.Context, _ *orderPlaced) error {
				runs.Add(1)
				return errors.Join(b.Apply(cqrs.OriginalMessageFromCtx(ctx)), errTwice)
			}))
		}, message.PassthroughHandler)
		command := event("command", "migrating_test.orderPlaced", `{"Order":"42"}`)
		testkit.NoError(t, b.Source.Publish("commands", command))
		b.Eventually("it is settled", func() bool { return len(b.Waiting()) == 1 || len(b.Effects()) == 1 })
		stop()
		want := "3 runs, 1 letters, 0 effects"
		if strings.HasPrefix(name, "acked") {
			want = "1 runs, 0 letters, 1 effects"
		}
		got := fmt.Sprintf("%d runs, %d letters, %d effects", runs.Load(), len(b.Waiting()), len(b.Effects()))
		testkit.Equal(t, name, got, want)
	}
}
