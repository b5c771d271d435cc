package conformance_test

import (
	"context"
	"maps"
	"net/url"
	"sync"
	"testing"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/services"
)

// The suite on NATS JetStream, with messages in Gob, and with metadata in headers as watermill-nats has it by default. Both run
// at the same time but for the row that restarts the broker.
func TestNATS(t *testing.T) {
	t.Parallel()
	var beside sync.RWMutex
	pins := map[string]string{
		"D9":   "no SQL source",
		"R12b": elsewhere,
		"F7":   "a lost connection ends no subscription: the same consumer may ack when it is back, within AckWait",
	}
	t.Run("gob", func(t *testing.T) { t.Parallel(); runNATS(t, "nats", wmnats.GobMarshaler{}, &beside, pins) })
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		runNATS(t, "nats-headers", &wmnats.NATSMarshaler{}, &beside, headersPins(pins))
	})
}

// headersPins adds what metadata in headers cannot do. What does not depend on the marshaler is tested with Gob.
func headersPins(others map[string]string) map[string]string {
	pins := maps.Clone(others)
	const newlines = "a line break in a header becomes a space, so attempts after the first are one line in the history"
	pins["R5"], pins["R8"], pins["R10"] = newlines, newlines, newlines
	pins["H1"] = "headers hold 64 KiB in all, and metadata _watermill_message_uuid becomes the id"
	for _, id := range []string{
		"R12a", "R12c", "R12d", "R12e", "R12f", "R12g", "D10", "F1", "F2", "F3", "F4", "F5", "F6", "F8", "F9", "F10",
	} {
		pins[id] = "no matter of the marshaler: see nats"
	}
	return pins
}

func runNATS(t *testing.T, name string, marshaler wmnats.MarshalerUnmarshaler, beside *sync.RWMutex, pins map[string]string) {
	b := natsBroker{services.NATS(t), marshaler}
	at, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Target{
		Name:       name,
		Publisher:  func(t testing.TB) message.Publisher { return b.publisher(t) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return b.subscriber(t, group, b.url) },
		Backlog: func(t testing.TB, group string) func(context.Context, string) (int, error) {
			return b.subscriber(t, group, b.url).Backlog
		},
		CreateTopic: b.createStream,
		BadTopic:    "no stream of NATS",
		MaxMessage:  1 << 20,
		Pins:        pins,
		Hostile:     b.hostile(),
		Beside:      beside,

		DeleteTopic: b.deleteStream,
		ReadOnly:    b.readOnly,
		Restart:     func(t testing.TB) { services.Restart(t, "nats") },
		Address:     at.Host,
		Through:     func(t testing.TB, address string) message.Publisher { return b.through(t, address) },
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return b.subscriber(t, group, b.at(t, address))
		},
	})
}
