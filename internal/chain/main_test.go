package chain

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

type markKey struct{}

// arrival is a message with room behind its payload, and what it was when it arrived.
type arrival struct {
	msg      *message.Message
	ctx      context.Context
	id       string
	metadata message.Metadata
	payload  []byte
	first    *byte // where the payload's bytes are: a subscriber may hold the same slice
}

func arrive(id string, metadata message.Metadata, payload []byte) arrival {
	a := arrival{id: id, metadata: maps.Clone(metadata), ctx: context.WithValue(context.Background(), markKey{}, id)}
	if payload != nil {
		a.payload = append([]byte{}, payload...)
		payload = append(make([]byte, 0, len(payload)+16), payload...)
	}
	if cap(payload) > 0 {
		a.first = &payload[:1][0]
	}
	a.msg = message.NewMessageWithContext(a.ctx, id, payload)
	a.msg.Metadata = metadata
	return a
}

func ordinary() arrival {
	return arrive("id-1", message.Metadata{"tenant": "acme", "empty": "", "trace": "42"}, []byte("payload"))
}

// check says in which way the message is not what arrived.
func (a arrival) check() error {
	m := a.msg
	switch {
	case m.UUID != a.id:
		return errors.New("another id: " + m.UUID)
	case (m.Metadata == nil) != (a.metadata == nil) || !maps.Equal(m.Metadata, a.metadata):
		return errors.New("other metadata")
	case (m.Payload == nil) != (a.payload == nil) || string(m.Payload) != string(a.payload):
		return errors.New("another payload")
	case cap(m.Payload) > 0 && &m.Payload[:1][0] != a.first:
		return errors.New("the payload stands in other bytes than those that arrived")
	case m.Context() != a.ctx:
		return errors.New("another context")
	}
	return nil
}

func (a arrival) want(t testing.TB) {
	t.Helper()
	err := a.check()
	testkit.Require(t, err == nil, "after the chain the message has %v", err)
}

// leave runs h in a chain, in a goroutine of its own, and lets it end in any way.
func leave(h message.HandlerFunc, msg *message.Message) {
	_, _ = testkit.Contained(Enter()(h), msg)
}

// exits are the ways in which a handler ends badly.
var exits = map[string]func() error{
	"error":  func() error { return errBoom },
	"panic":  func() error { panic("boom") },
	"goexit": func() error { runtime.Goexit(); return nil },
}

// usual is an empty chain and the message that figures are given for: 5 metadata keys and 1 KiB.
func usual(tb testing.TB) (message.HandlerFunc, *message.Message) {
	msg := message.NewMessage("id", make([]byte, 1024))
	for _, key := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(key, "value")
	}
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	msg.SetContext(ctx)
	return Enter()(func(*message.Message) ([]*message.Message, error) { return nil, nil }), msg
}

func BenchmarkEnter(b *testing.B) {
	h, msg := usual(b)
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(h(msg))
	}
}
