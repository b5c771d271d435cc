package columns_test

import (
	"context"
	"sync"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// The suite on NATS JetStream, with messages in Gob, and with metadata in headers as watermill-nats has it by default.
// Both run at the same time but for the row that restarts the broker.
func TestNATS(t *testing.T) {
	t.Parallel()
	var beside sync.RWMutex
	t.Run("gob", func(t *testing.T) {
		t.Parallel()
		target := natsTarget(natsBroker{services.NATS(t), wmnats.GobMarshaler{}}, &beside)
		target.Name = "nats"
		conformance.Run(t, target)
	})
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		target := natsTarget(natsBroker{services.NATS(t), &wmnats.NATSMarshaler{}}, &beside)
		target.Name = "nats-headers"
		target.Only = []string{ // what the marshaler has a part in
			"P2", "P7", "R2", "R5", "R8", "R9", "R10", "C5", "D1", "D2", "D4", "D6", "D7", "D8", "D11", "V1", "V1b", "V3", "V4", "H1", "H3", "H4", "H6",
			"K7", "K8", "K9", "K14", "K15", "H10", "H11",
		}
		target.Pins = map[string]string{
			"K9/value of 64 KiB":          "K9: headers have at most 64 KiB in all",
			"K9/value of 100 KiB":         "K9: headers have at most 64 KiB in all",
			"K9/reserved keys":            "K9: metadata _watermill_message_uuid becomes the id",
			"K9/values with outer spaces": "K9: spaces around a value are lost",
			"K9/values with newlines":     "K9: a line break becomes a space",
			"K15/id with newlines":        "K15: a line break becomes a space",
		}
		for _, name := range []string{
			"key empty", "keys not ASCII", "keys not UTF-8", "keys with colons", "keys with dots", "keys with newlines", "keys with spaces",
		} {
			target.Pins["K9/"+name] = "K9: metadata whose key is no name of a header are dropped"
		}
		conformance.Run(t, target)
	})
}

func natsTarget(b natsBroker, beside *sync.RWMutex) conformance.Target {
	return conformance.Target{
		Publisher:  func(t testing.TB) message.Publisher { return b.publisher(t) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return b.subscriber(t, group, b.url) },
		Redelivers: func(t testing.TB, group string, after time.Duration) message.Subscriber {
			config := b.config(b.url, group)
			config.AckWait = after
			return testkit.Must(jetstream.NewSubscriber(config, nil))
		},
		Backlog: func(t testing.TB, group string) func(context.Context, string) (int, error) {
			return b.subscriber(t, group, b.url).Backlog
		},
		CreateTopic: b.createStream,
		BadTopic:    "no stream of NATS",
		MaxMessage:  1 << 20,
		Pins: map[string]string{
			"D9":             "K18: no SQL source",
			"R12b":           elsewhere,
			"F7/it gives up": "K11: a lost connection ends no subscription; a message can be acked when the client is back, within AckWait",
		},
		Hostile: b.hostile(),
		Beside:  beside,

		DeleteTopic: b.deleteStream,
		ReadOnly:    b.readOnly,
		Restart:     func(t testing.TB) { services.Restart(t, "nats") },
		Address:     b.address(),
		Through:     func(t testing.TB, address string) message.Publisher { return b.through(t, address) },
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return b.subscriber(t, group, b.at(t, address))
		},
	}
}
