package stages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

type orderPlaced struct{ Order string }

// Feature R9: the handlers of cqrs processors are handled again later, with the event or command decoded as before:
// those of which the processor tells the handler, and those of a group.
func TestStagesExtendCQRS(t *testing.T) {
	for _, kind := range []string{"event", "group", "command"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
			var handled []string
			handle := func(ctx context.Context, event *orderPlaced) error {
				handled = append(handled, message.HandlerNameFromCtx(cqrs.OriginalMessageFromCtx(ctx).Context())+" "+event.Order)
				if len(handled) < 3 {
					return errBoom
				}
				return nil
			}
			testkit.NoError(t, addProcessor(s, kind, handle))
			s.run()
			testkit.NoError(t, sendOrder(t.Context(), s, kind))
			time.Sleep(time.Hour)
			s.stop()
			if len(handled) != 3 || handled[2] != "billing 42" || len(s.letters.all()) != 0 {
				t.Errorf("%s: handled %q, letters %v", kind, handled, s.letters.all())
			}
		})
	}
}

func sendOrder(ctx context.Context, s *staging, kind string) error {
	if kind == "command" {
		bus, err := cqrs.NewCommandBusWithConfig(s.broker, cqrs.CommandBusConfig{
			GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "orders", nil },
			Marshaler:            cqrs.JSONMarshaler{},
		})
		if err != nil {
			return err
		}
		return bus.Send(ctx, orderPlaced{"42"})
	}
	bus, err := cqrs.NewEventBusWithConfig(s.broker, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	if err != nil {
		return err
	}
	return bus.Publish(ctx, orderPlaced{"42"})
}

func addProcessor(s *staging, kind string, handle func(context.Context, *orderPlaced) error) error {
	switch kind {
	case "command":
		processor, err := cqrs.NewCommandProcessorWithConfig(s.router, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.broker.consumer(), nil
			},
			Marshaler: cqrs.JSONMarshaler{},
		})
		if err != nil {
			return err
		}
		if _, err := processor.AddHandler(cqrs.NewCommandHandler("billing", handle)); err != nil {
			return err
		}
		_, err = s.stages.Extend(s.router, "billing", "orders")
		return err
	case "event":
		processor, err := cqrs.NewEventProcessorWithConfig(s.router, cqrs.EventProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
			SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.broker.consumer(), nil
			},
			Marshaler: cqrs.JSONMarshaler{},
		})
		if err != nil {
			return err
		}
		if _, err := processor.AddHandler(cqrs.NewEventHandler("billing", handle)); err != nil {
			return err
		}
		_, err = s.stages.Extend(s.router, "billing", "orders")
		return err
	}
	processor, err := cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.broker.consumer(), nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	if err != nil {
		return err
	}
	if err := processor.AddHandlersGroup("billing", cqrs.NewGroupEventHandler(handle)); err != nil {
		return err
	}
	_, err = s.stages.Extend(s.router, "billing", "orders")
	return err
}
