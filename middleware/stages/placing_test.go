package stages_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// story is what happened, in order. It is a placing.Delivery too.
type history chan string

func (s history) Placing(_ context.Context, msg *message.Message) { s <- "placing " + msg.UUID }

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
			s, notified := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil), make(history, 10)
			s.broker.refuses = func(topic string, msg *message.Message) error {
				if topic == "orders" {
					return nil
				}
				notified <- "to " + topic
				if id == "refused" {
					return classify.ErrRefused
				}
				return nil
			}
			s.router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
				msg.SetContext(placing.With(msg.Context(), notified))
			}))
			s.handle("billing", "orders", func(msg *message.Message) error {
				notified <- "handled"
				switch id {
				case "good":
					return nil
				case "permanent":
					return classify.Permanent(errBoom)
				}
				return errBoom
			})
			s.passes(time.Minute, id)
			var all []string
			for len(notified) > 0 {
				all = append(all, <-notified)
			}
			testkit.Check(t, slices.Equal(all, want), "%s: %v, want %v", id, all, want)
		})
	}
}

// inHeaders changes metadata as NATS does on the way into a stage.
type inHeaders struct{ message.Publisher }

func (p inHeaders) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		for key, value := range msg.Metadata {
			delete(msg.Metadata, key)
			if !strings.ContainsAny(key, " :\n") {
				msg.Metadata[key] = strings.TrimSpace(strings.ReplaceAll(value, "\n", " "))
			}
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

// Feature R10, promise P2: metadata that a stage's transport changes or loses are what they were for each attempt, in
// each stage.
func TestStageBehindHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute), Publisher: inHeaders{b}}, nil)
		s.broker = b
		sent := message.Metadata{"k": "a\nb", "outer": " c ", "a key": "v", "urn:x": "y", "plain": "z"}
		var seen []message.Metadata
		s.handle("billing", "orders", func(msg *message.Message) error {
			seen = append(seen, inside.Poison.ProducerMetadata(maps.Clone(msg.Metadata)))
			testkit.Equal(t, "the handler sees what is packed", msg.Metadata[poison.KeyOriginalMetadata], "")
			return errBoom
		})
		s.run()
		msg := message.NewMessage("m", nil)
		msg.Metadata = maps.Clone(sent)
		testkit.NoError(t, b.Publish("orders", msg))
		time.Sleep(5 * time.Minute)
		s.stop()
		testkit.Check(t, len(seen) == 3, "handled %d times", len(seen))
		for i, metadata := range append(seen, s.letters.all()["m"].Original.Metadata) {
			testkit.Check(t, maps.Equal(metadata, sent), "attempt %d: %q", i, metadata)
		}
	})
}
