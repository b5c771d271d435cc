package idempotency

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I4: whatever the outputs hold, the record gives it back.
func TestCodecRoundTrip(t *testing.T) {
	raw := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
	rapid.Check(t, func(t *rapid.T) {
		out := make([]*message.Message, rapid.IntRange(0, 4).Draw(t, "messages"))
		for i := range out {
			out[i] = message.NewMessage(raw.Draw(t, "id"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
			out[i].Metadata = rapid.MapOf(raw, raw).Draw(t, "metadata")
		}
		got, err := decodeOutputs(encodeOutputs(out))
		testkit.Require(t, err == nil && len(got) == len(out), "%v %v", got, err)
		for i := range out {
			if got[i].UUID != out[i].UUID || !bytes.Equal(got[i].Payload, out[i].Payload) || !maps.Equal(got[i].Metadata, out[i].Metadata) {
				t.Fatalf("got %v, want %v", got[i], out[i])
			}
		}
	})
}

// Feature I4: a damaged record is an error, never a panic; a cut one never passes.
func FuzzDecodeOutputs(f *testing.F) {
	whole := encodeOutputs([]*message.Message{{UUID: "a", Metadata: message.Metadata{"k": "v"}, Payload: []byte("p")}, {UUID: "b"}})
	for i := range whole {
		f.Add(whole[:i])
	}
	f.Add([]byte(`[{"id":1}]`))
	f.Add([]byte(`[null, {"metadata":[["YQ=="],[]]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := decodeOutputs(b)
		testkit.Require(t, err == nil || out == nil, "both messages and an error")
		if n := len(b); n > 0 && n < len(whole) && bytes.HasPrefix(whole, b) && err == nil {
			t.Fatalf("the record cut at %d passes", n)
		}
	})
}

// RequeueAfter is how long a receiver of config holds a message whose key is leased, before it is given back.
func RequeueAfter(config *ReceiverConfig) *time.Duration { return &config.requeueAfter }
