package chain

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

var changes = map[string]func(*message.Message){
	"nothing":             func(*message.Message) {},
	"sets metadata":       func(m *message.Message) { m.Metadata.Set("tenant", "other") },
	"adds metadata":       func(m *message.Message) { m.Metadata.Set("more", "x") },
	"deletes metadata":    func(m *message.Message) { delete(m.Metadata, "empty") },
	"swaps a key":         func(m *message.Message) { delete(m.Metadata, "empty"); m.Metadata["blank"] = "" },
	"empties metadata":    func(m *message.Message) { clear(m.Metadata) },
	"nils metadata":       func(m *message.Message) { m.Metadata = nil },
	"replaces metadata":   func(m *message.Message) { m.Metadata = message.Metadata{"a": "b"} },
	"nils payload":        func(m *message.Message) { m.Payload = nil },
	"empties payload":     func(m *message.Message) { m.Payload = m.Payload[:0] },
	"cuts payload":        func(m *message.Message) { m.Payload = m.Payload[2:4] },
	"replaces payload":    func(m *message.Message) { m.Payload = []byte("other") },
	"same bytes anew":     func(m *message.Message) { m.Payload = append([]byte(nil), m.Payload...) },
	"writes into payload": func(m *message.Message) { m.Payload[0] = 'X' },
	"clears payload":      func(m *message.Message) { clear(m.Payload) },
	"appends in place":    func(m *message.Message) { m.Payload = append(m.Payload, "and more"...) },
	"appends and moves":   func(m *message.Message) { m.Payload = append(m.Payload, make([]byte, 1<<10)...); m.Payload[0] = 'X' },
	"overwrites and cuts": func(m *message.Message) { m.Payload = append(m.Payload[:1], "XYZ"...)[1:] },
	"replaces id":         func(m *message.Message) { m.UUID = "other" },
	"replaces context":    func(m *message.Message) { m.SetContext(context.Background()) },
	"nils context":        func(m *message.Message) { var none context.Context; m.SetContext(none) },
}

// Feature R2, promise P2: whatever the handler changed, the message is as it arrived when an error, a panic or a
// runtime.Goexit leaves the chain.
func TestRestoredBeforeItLeaves(t *testing.T) {
	for name, change := range changes {
		for exit, end := range exits {
			t.Run(name+", "+exit, func(t *testing.T) {
				a := ordinary()
				leave(func(m *message.Message) ([]*message.Message, error) { change(m); return nil, end() }, a.msg)
				a.want(t)
			})
		}
	}
}

// Feature R2: a retry restores within the call, as often as it likes.
func TestRestoreBetweenAttempts(t *testing.T) {
	for name, change := range changes {
		a := ordinary()
		c := begin(a.msg)
		for range 3 {
			change(c.Msg)
			c.Restore()
			if err := a.check(); err != nil {
				t.Errorf("%s: the message has %v", name, err)
			}
		}
		c.Release()
	}
}

// Promise P2: what a handler that succeeded made of its message is its own affair; Spillway does not undo it.
func TestSuccessIsLeftAlone(t *testing.T) {
	a := ordinary()
	_, err := Enter()(func(m *message.Message) ([]*message.Message, error) {
		m.Metadata.Set("tenant", "other")
		return []*message.Message{m}, nil
	})(a.msg)
	if err != nil || a.msg.Metadata.Get("tenant") != "other" {
		t.Fatalf("got error %v and metadata %v", err, a.msg.Metadata)
	}
}

// Promise P2: nil and empty are two things, and each stays what it was.
func TestNilAndEmpty(t *testing.T) {
	for _, a := range []arrival{
		arrive("", nil, nil), arrive("", message.Metadata{}, []byte{}), arrive("a", nil, []byte("x")), arrive("b", message.Metadata{"k": "v"}, nil),
	} {
		leave(func(m *message.Message) ([]*message.Message, error) {
			m.UUID, m.Metadata, m.Payload = "other", message.Metadata{"other": "x"}, []byte("other")
			return nil, errBoom
		}, a.msg)
		a.want(t)
		leave(func(m *message.Message) ([]*message.Message, error) {
			m.Metadata, m.Payload = nil, nil
			return nil, errBoom
		}, a.msg)
		a.want(t)
	}
}

// Promise P2: size changes nothing: a payload beyond what is pooled, and ten thousand keys.
func TestLargeMessages(t *testing.T) {
	for _, size := range []int{maxPooledPayload - 1, maxPooledPayload, maxPooledPayload + 1, 1 << 20} {
		metadata := make(message.Metadata)
		for i := range 10_000 {
			metadata[fmt.Sprintf("key-%d", i)] = fmt.Sprint(i)
		}
		payload := make([]byte, size)
		payload[size-1] = 7
		a := arrive("large", metadata, payload)
		leave(func(m *message.Message) ([]*message.Message, error) {
			m.Payload[size-1] = 8
			m.Metadata.Set("key-9999", "other")
			return nil, errBoom
		}, a.msg)
		a.want(t)
	}
}

// Promise P5: a call that was large leaves nothing large in the pool, and no call leaves its message there.
func TestReleaseKeepsLittle(t *testing.T) {
	metadata := make(message.Metadata)
	for i := range maxPooledPairs + 1 {
		metadata[fmt.Sprint(i)] = "x"
	}
	c := begin(arrive("large", metadata, make([]byte, maxPooledPayload+1)).msg)
	c.Release()
	if cap(c.payload) != 0 || cap(c.metadata) != 0 {
		t.Errorf("kept %d bytes and %d pairs", cap(c.payload), cap(c.metadata))
	}
	c = begin(ordinary().msg)
	c.Release()
	if c.Msg != nil || c.Ctx != nil || c.arrived != nil || c.uuid != "" || c.Attempts != 0 {
		t.Errorf("the pool holds %+v", c)
	}
}
