//go:build !race

package chain

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P5: success allocates nothing.
// Pools forget at random under the race detector, so make test runs this without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	h, msg := usual(t)
	n := testing.AllocsPerRun(1000, func() { _, _ = h(msg) })
	testkit.Require(t, n == 0, "%g allocations for a message", n)
}
