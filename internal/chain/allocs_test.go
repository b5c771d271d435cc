//go:build !race

package chain

import "testing"

// Promise P5: success allocates nothing.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	h, msg := usual(t)
	if n := testing.AllocsPerRun(1000, func() { _, _ = h(msg) }); n != 0 {
		t.Fatalf("%g allocations for a message", n)
	}
}
