//go:build !race

package guard_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/guard"
)

// Promise P5: a message that passes costs no allocation. Pools forget at random under the race detector.
func TestGuardAllocatesNothing(t *testing.T) {
	h := middleware(guard.Rules{Required: []string{"tenant"}, MaxHops: 9, ExpiresKey: "expires"})(
		func(*message.Message) ([]*message.Message, error) { return nil, nil })
	msg := newMessage("1")
	if n := testing.AllocsPerRun(1000, func() { _, _ = h(msg) }); n != 0 {
		t.Errorf("%g allocations for a message", n)
	}
}
