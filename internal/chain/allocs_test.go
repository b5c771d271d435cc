//go:build !race

package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Promise P5: success allocates nothing.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	msg := message.NewMessage("id", make([]byte, 1024))
	for _, k := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(k, "value")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	msg.SetContext(ctx)
	h := Enter()(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	if n := testing.AllocsPerRun(1000, func() { _, _ = h(msg) }); n != 0 {
		t.Fatalf("%g allocations for a message", n)
	}
}
