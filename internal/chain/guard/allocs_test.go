//go:build !race

package guard_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/guard"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P5: a message that passes costs no allocation. Pools forget at random under the race detector.
func TestGuardAllocatesNothing(t *testing.T) {
	h := middleware(guard.Rules{Required: []string{"tenant"}, MaxHops: 9, ExpiresKey: "expires"})(
		func(*message.Message) ([]*message.Message, error) { return nil, nil })
	msg := newMessage("1")
	testkit.Equal(t, "allocations for a message", testing.AllocsPerRun(1000, func() { _, _ = h(msg) }), 0)
}
