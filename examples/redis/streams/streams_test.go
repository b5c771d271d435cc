package streams_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type panics struct{}

func (panics) Unmarshal(map[string]any) (*message.Message, error) { panic("boom") }

type refuses struct{}

func (refuses) Unmarshal(map[string]any) (*message.Message, error) {
	return nil, errors.New("no such schema")
}

// Feature D8: each entry becomes a message, with what can be read of it, and a mark if that is not all.
func TestMarshaler(t *testing.T) {
	msg := message.NewMessage("id", []byte("payload"))
	msg.Metadata = message.Metadata{"k": "v", redisstream.UUIDHeaderKey: "another"}
	sent := maps.Clone(msg.Metadata)
	entry, err := streams.Marshaler{}.Marshal("orders", msg)
	if err != nil || !maps.Equal(msg.Metadata, sent) {
		t.Fatalf("%v; the message has %v", err, msg.Metadata)
	}
	values := map[string]any{} // as Redis returns them
	for name, value := range entry {
		values[name] = fmt.Sprintf("%s", value)
	}
	for name, c := range map[string]struct {
		with   redisstream.Unmarshaller
		values map[string]any
		id     string
		marked string
		whole  bool
	}{
		"readable":      {nil, values, "id", "", true},
		"refused":       {refuses{}, values, "id", "no such schema", true},
		"panics":        {panics{}, values, "id", "boom", true},
		"no id":         {nil, map[string]any{"payload": "payload"}, "", "key is missing", false},
		"no text":       {nil, map[string]any{redisstream.UUIDHeaderKey: 7, "payload": "payload"}, "", "interface conversion", false},
		"broken within": {nil, map[string]any{redisstream.UUIDHeaderKey: "id", "payload": "payload", "metadata": "\xc1"}, "id", "metadata", false},
	} {
		got, err := streams.Marshaler{Unmarshaler: c.with}.Unmarshal(c.values)
		if err != nil || got.UUID != c.id || string(got.Payload) != "payload" {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if marked := deadletter.Marked(got.Metadata[deadletter.KeyMarked]); (marked != nil) != (c.marked != "") || marked != nil && !strings.Contains(marked.Error(), c.marked) {
			t.Errorf("%s: marked with %v, want %q", name, marked, c.marked)
		}
		if c.whole && (got.Metadata["k"] != "v" || got.Metadata[redisstream.UUIDHeaderKey] != "another") {
			t.Errorf("%s: metadata %v", name, got.Metadata)
		}
	}
}

// Decision 14: a server that may drop what it confirmed is named with the setting to change.
func TestCheckServer(t *testing.T) {
	options := redis.Options{Addr: services.Redis(t)}
	if err := streams.CheckServer(t.Context(), options); err != nil {
		t.Errorf("the server of make services: %v", err)
	}
	if err := streams.CheckServer(context.Background(), redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}
