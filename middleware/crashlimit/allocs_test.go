//go:build !race

package crashlimit

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P5, feature D10: as long as nothing ended uncleanly a message allocates nothing, and asks no database.
// Pools forget at random under the race detector, so make test runs this without it.
func TestQuietAllocatesNothing(t *testing.T) {
	f := newFake()
	for name, config := range map[string]options{
		"store": {Config: Config{Store: f}}, "broker": {Config: Config{Delivered: func(*message.Message) (int, bool) { return 1, true }}},
	} {
		l := newLimit(t, config)
		if config.Store != nil {
			testkit.NoError(t, l.start())
		}
		h, msg := l.Middleware(succeed), newMessage("a")
		before := f.count(func() int { return len(f.left) })
		testkit.Equal(t, name+": allocations for a message", testing.AllocsPerRun(1000, func() { _, _ = h(msg) }), 0)
		testkit.Equal(t, name+": a message was marked", f.count(func() int { return len(f.left) }), before)
	}
}
