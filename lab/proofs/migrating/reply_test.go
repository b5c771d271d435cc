package migrating_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/requestreply"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
)

// The statements of docs/migrating.md about requestreply.

// replying is a handler of commands that fails as many times as it is told, with a backend of replies on the source.
func replying(t *testing.T, b *shop.Shop, ack bool, fails func() error) (requestreply.Backend[requestreply.NoResult], cqrs.CommandHandler, *cqrs.CommandBus) {
	t.Helper()
	patience := 20 * time.Second
	backend := testkit.Must(requestreply.NewPubSubBackend(requestreply.PubSubBackendConfig{
		Publisher: b.Source, AckCommandErrors: ack, ListenForReplyTimeout: &patience,
		SubscriberConstructor: func(requestreply.PubSubBackendSubscribeParams) (message.Subscriber, error) {
			return shop.StaysOpen(b.Source), nil
		},
		GeneratePublishTopic:   func(requestreply.PubSubBackendPublishParams) (string, error) { return "replies", nil },
		GenerateSubscribeTopic: func(requestreply.PubSubBackendSubscribeParams) (string, error) { return "replies", nil },
	}, requestreply.BackendPubsubJSONMarshaler[requestreply.NoResult]{}))
	bus := testkit.Must(cqrs.NewCommandBusWithConfig(b.Source, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	}))
	handler := requestreply.NewCommandHandler("place", backend, func(context.Context, *orderPlaced) error { return fails() })
	return backend, handler, bus
}

// A reply is sent at each attempt. With AckCommandErrors the caller has the error, and the command is not retried.
func TestMigratingRequestReply(t *testing.T) {
	for _, ack := range []bool{true, false} {
		b := shop.New(t, false)
		var runs atomic.Int32
		replied := make(chan struct{}) // gochannel gives two replies that are there at once in any order
		backend, handler, bus := replying(t, b, ack, func() error {
			if runs.Add(1) == 1 {
				return errTwice
			}
			<-replied
			return nil
		})
		stop := b.Run(func(router *message.Router) {
			b.Channel().Attach(router)
			commands(t, b, router, nil, handler)
		}, message.PassthroughHandler)
		replies, cancel, err := requestreply.SendWithReplies(t.Context(), bus, backend, &orderPlaced{"42"})
		testkit.NoError(t, err)
		first := <-replies
		testkit.Check(t, first.Error != nil && first.Error.Error() == errTwice.Error(), "the first reply is %+v", first)
		close(replied)
		if !ack {
			second := <-replies
			testkit.Check(t, second.Error == nil, "the second reply is %+v", second)
		}
		cancel()
		stop()
		testkit.Check(t, runs.Load() == map[bool]int32{true: 1, false: 2}[ack] && len(b.Waiting()) == 0,
			"AckCommandErrors %v: %d runs, %d letters", ack, runs.Load(), len(b.Waiting()))
	}
}

// A command that was redriven keeps its operation id: its reply goes to the caller that still waits.
func TestMigratingReplyAfterRedrive(t *testing.T) {
	b := shop.New(t, false)
	var fixed atomic.Bool
	backend, handler, bus := replying(t, b, false, func() error {
		if !fixed.Load() {
			return classify.Permanent(errTwice)
		}
		return nil
	})
	stop := b.Run(func(router *message.Router) {
		b.Channel().Attach(router)
		commands(t, b, router, nil, handler)
	}, message.PassthroughHandler)
	defer stop()
	replies, cancel, err := requestreply.SendWithReplies(t.Context(), bus, backend, &orderPlaced{"42"})
	testkit.NoError(t, err)
	defer func() {
		cancel()
		for range replies {
		}
	}()
	first := <-replies
	testkit.Check(t, first.Error != nil, "the first reply is %+v", first)
	b.Eventually("it is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	fixed.Store(true)
	drain(t, b, "commands")
	second := <-replies
	testkit.Check(t, second.Error == nil, "the reply after the redrive is %+v", second)
}

// A reply that cannot be published fails its command. With a ReplyPublishErrorHandler the command succeeds.
func TestMigratingReplyRefused(t *testing.T) {
	for _, ignores := range []bool{true, false} {
		b := shop.New(t, false)
		b.Outs.SetRefuse(func(*message.Message) error { return errors.New("no such topic") })
		config := requestreply.PubSubBackendConfig{
			Publisher:              b.Outs,
			SubscriberConstructor:  func(requestreply.PubSubBackendSubscribeParams) (message.Subscriber, error) { return b.Source, nil },
			GeneratePublishTopic:   func(requestreply.PubSubBackendPublishParams) (string, error) { return "replies", nil },
			GenerateSubscribeTopic: func(requestreply.PubSubBackendSubscribeParams) (string, error) { return "replies", nil },
		}
		if ignores {
			config.ReplyPublishErrorHandler = func(string, *message.Message, error) error { return nil }
		}
		backend := testkit.Must(
			requestreply.NewPubSubBackend(config, requestreply.BackendPubsubJSONMarshaler[requestreply.NoResult]{}))
		stop := b.Run(func(router *message.Router) {
			b.Channel().Attach(router)
			commands(t, b, router, nil, requestreply.NewCommandHandler("place", backend, func(ctx context.Context, _ *orderPlaced) error {
				return b.Apply(cqrs.OriginalMessageFromCtx(ctx))
			}))
		}, message.PassthroughHandler)
		command := event("command", "migrating_test.orderPlaced", `{"Order":"42"}`)
		command.Metadata.Set(requestreply.OperationIDMetadataKey, "operation")
		testkit.NoError(t, b.Source.Publish("commands", command))
		b.Eventually("it is settled", func() bool { return len(b.Waiting()) == 1 || len(b.Effects()) == 1 })
		stop()
		effects := len(b.Effects())
		testkit.Check(t, (effects == 1) == ignores && (len(b.Waiting()) == 0) == ignores,
			"with a ReplyPublishErrorHandler %v: %d effects, %d letters", ignores, effects, len(b.Waiting()))
	}
}
