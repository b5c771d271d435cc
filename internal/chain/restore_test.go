package chain

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P2: what a handler that succeeded made of its message is its own affair; Spillway does not undo it.
func TestSuccessIsLeftAlone(t *testing.T) {
	a := ordinary()
	_, err := Enter()(func(m *message.Message) ([]*message.Message, error) {
		m.Metadata.Set("tenant", "other")
		return []*message.Message{m}, nil
	})(a.msg)
	testkit.Require(t, err == nil && a.msg.Metadata.Get("tenant") == "other",
		"got error %v and metadata %v", err, a.msg.Metadata)
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
	testkit.Check(t, cap(c.payload) == 0 && cap(c.metadata) == 0,
		"kept %d bytes and %d pairs", cap(c.payload), cap(c.metadata))
	c = begin(ordinary().msg)
	c.Release()
	testkit.Check(t, c.Msg == nil && c.Ctx == nil && c.arrived == nil && c.uuid == "" && c.Attempts == 0,
		"the pool holds %+v", c)
}
