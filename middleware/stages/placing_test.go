package stages_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/placing"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// story is what happened, in order. It is a placing.Delivery too.
type story struct {
	mu  sync.Mutex
	all []string
}

func (s *story) add(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, event)
}

func (s *story) Placing(_ context.Context, msg *message.Message) { s.add("placing " + msg.UUID) }

// Promise P1: the subscriber learns that a message is being placed after its handler and before its stage is published
// to. That is so for a message that comes out of a stage too, and for one that its stage refuses, whose letter is made
// then.
func TestPlacingBegins(t *testing.T) {
	for id, want := range map[string][]string{
		"bad":       {"handled", "placing bad", "to orders.billing.retry.1s", "handled", "placing bad"},
		"refused":   {"handled", "placing refused", "to orders.billing.retry.1s", "placing refused"},
		"good":      {"handled"},
		"permanent": {"handled", "placing permanent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, told := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil), &story{}
			s.broker.refuses = func(topic string, msg *message.Message) error {
				if topic == "orders" {
					return nil
				}
				told.add("to " + topic)
				if id == "refused" {
					return classify.ErrRefused
				}
				return nil
			}
			s.router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
				msg.SetContext(placing.With(msg.Context(), told))
			}))
			s.handle("billing", "orders", func(msg *message.Message) error {
				told.add("handled")
				switch id {
				case "good":
					return nil
				case "permanent":
					return classify.Permanent(errBoom)
				}
				return errBoom
			})
			s.passes(time.Minute, id)
			if !slices.Equal(told.all, want) {
				t.Errorf("%s: %v, want %v", id, told.all, want)
			}
		})
	}
}
