package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func BenchmarkEnter(b *testing.B) {
	msg := message.NewMessage("id", make([]byte, 1024))
	for _, k := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(k, "value")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	msg.SetContext(ctx)
	h := Enter()(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h(msg); err != nil {
			b.Fatal(err)
		}
	}
}
