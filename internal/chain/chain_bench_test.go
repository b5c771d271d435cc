package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
