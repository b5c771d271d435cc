package columns_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// The suite on Redis Streams.
func TestRedis(t *testing.T) {
	t.Parallel()
	b := redisBroker(services.Redis(t))
	conformance.Run(t, conformance.Target{
		Name:      "redis",
		Publisher: func(t testing.TB) message.Publisher { return b.publisher(t, b.options()) },
		Subscriber: func(t testing.TB, group string) message.Subscriber {
			return b.subscriber(t, group, redisIdle, b.options())
		},
		Redelivers: func(t testing.TB, group string, after time.Duration) message.Subscriber {
			return b.subscriber(t, group, after, b.options())
		},
		Backlog:     b.backlog,
		CreateTopic: b.createTopic,
		Hostile:     hostileEntries(b),
		DeleteTopic: b.deleteTopic,
		ReadOnly:    b.readOnly,
		Restart:     func(t testing.TB) { services.Restart(t, "redis") },
		Address:     string(b),
		Through:     func(t testing.TB, address string) message.Publisher { return b.publisher(t, quick(address)) },
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return b.subscriber(t, group, redisIdle, quick(address))
		},
		Pins: map[string]string{
			"D9":             "K18: no SQL source",
			"D5":             "K16: the first message makes its stream",
			"R12b":           elsewhere,
			"H9/in topics":   "K19: redisstream lists no streams",
			"F7/it gives up": "K11: a context outlives the connection",
		},
	})
}

// hostileEntries are entries that Watermill's marshaler does not make, or that its unmarshaler refuses.
func hostileEntries(b redisBroker) []conformance.Hostile {
	send := func(values map[string]any) func(testing.TB, string) {
		return func(t testing.TB, topic string) { b.send(t, topic, values) }
	}
	const id = redisstream.UUIDHeaderKey
	return []conformance.Hostile{
		{Name: "no id", Publish: send(map[string]any{"payload": "v"})},
		{Name: "foreign fields alone", Publish: send(map[string]any{"a": "b"})},
		{Name: "metadata that is no msgpack", Publish: send(map[string]any{id: "hostile", "payload": "v", "metadata": "\xc1\xff"})},
		{Name: "metadata that promises four billion keys", Publish: send(map[string]any{id: "hostile", "payload": "v", "metadata": "\xdf\xff\xff\xff\xff"})},
		{Name: "metadata of numbers", Publish: send(map[string]any{id: "hostile", "payload": "v", "metadata": "\x81\x01\x02"})},
		{Name: "metadata with the marshaler's own key", Publish: send(map[string]any{
			id: "hostile", "payload": "v", "metadata": "\x81\xb7_watermill_message_uuid\xa1x"})},
		{Name: "a message the unmarshaler refuses", Publish: send(map[string]any{id: "hostile", "payload": conformance.Unreadable})},
	}
}
