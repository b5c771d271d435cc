//go:build !race

package stages_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Promise P5: success allocates nothing.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	later := testkit.Must(stages.New(newQueue(t, testkit.Nowhere{}), stagesConfig(t)))
	h, msg := later.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil }), newMessage("1")
	testkit.Equal(t, "allocations for a message", testing.AllocsPerRun(1000, func() { _, _ = h(msg) }), 0)
}
