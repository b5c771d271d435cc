package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"
)

// Feature R2, promise P2: whatever a handler does to whatever message, Restore gives back the one that arrived, and
// Original shares nothing with it. So it is when an error, a panic or a runtime.Goexit leaves the chain.
func TestRestoreProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArrival(t)
		c := begin(a.msg)
		for range rapid.IntRange(0, 10).Draw(t, "changes") {
			mutate(t, a.msg)
			if rapid.IntRange(0, 3).Draw(t, "restore") == 0 {
				c.Restore()
			}
		}
		original := c.Original()
		c.Restore()
		if err := a.check(); err != nil {
			t.Fatalf("restored, the message has %v", err)
		}
		copied := a
		copied.msg, copied.first = original, nil
		if cap(original.Payload) > 0 {
			copied.first = &original.Payload[:1][0]
		}
		if a.metadata == nil {
			copied.metadata = message.Metadata{} // a copy may always be written to
		}
		if err := copied.check(); err != nil {
			t.Fatalf("the original has %v", err)
		}
		clear(original.Payload)
		original.Metadata["written"] = "into the original"
		c.Release()
		if err := a.check(); err != nil {
			t.Fatalf("after writes into the original the message has %v", err)
		}
		end := exits[rapid.SampledFrom([]string{"error", "panic", "goexit"}).Draw(t, "end")]
		leave(func(m *message.Message) ([]*message.Message, error) { mutate(t, m); return nil, end() }, a.msg)
		if err := a.check(); err != nil {
			t.Fatalf("outside of the chain the message has %v", err)
		}
	})
}

func drawArrival(t *rapid.T) arrival {
	var metadata message.Metadata
	if rapid.Bool().Draw(t, "has metadata") {
		metadata = rapid.MapOfN(rapid.StringN(0, 3, -1), rapid.StringN(0, 5, -1), 0, 8).Draw(t, "metadata")
	}
	var payload []byte
	if rapid.Bool().Draw(t, "has payload") {
		payload = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
	}
	return arrive(rapid.String().Draw(t, "id"), metadata, payload)
}

func mutate(t *rapid.T, m *message.Message) {
	text := rapid.StringN(0, 3, -1).Draw(t, "text")
	switch rapid.IntRange(0, 10).Draw(t, "change") {
	case 0:
		m.UUID = text
	case 1:
		m.SetContext(context.WithValue(context.Background(), markKey{}, text))
	case 2:
		if m.Metadata != nil {
			m.Metadata[text] += "x"
		}
	case 3:
		delete(m.Metadata, text)
	case 4:
		clear(m.Metadata)
	case 5:
		m.Metadata = rapid.SampledFrom([]message.Metadata{nil, {}, {text: text}}).Draw(t, "new metadata")
	case 6:
		if len(m.Payload) > 0 {
			m.Payload[rapid.IntRange(0, len(m.Payload)-1).Draw(t, "at")]++
		}
	case 7:
		m.Payload = append(m.Payload, text...)
	case 8:
		m.Payload = m.Payload[rapid.IntRange(0, len(m.Payload)).Draw(t, "from"):]
	case 9:
		var none context.Context
		m.SetContext(none)
	case 10:
		m.Payload = rapid.SampledFrom([]message.Payload{nil, {}, []byte(text), append([]byte(nil), m.Payload...)}).Draw(t, "new payload")
	}
}
