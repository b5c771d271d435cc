//go:build !race

package main

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P5, features R11, R12: a message that succeeds allocates nothing. The race detector makes pools forget.
func TestHappyPathAllocatesNothing(t *testing.T) {
	for name, side := range map[string]func(*testing.B){"spillway": happySpillway, "with breaker and budget": happyGuarded, "with metrics": happyObserved} {
		n := testing.Benchmark(side).AllocsPerOp()
		testkit.Check(t, n == 0, "%s: %d allocations a message", name, n)
	}
}

// Feature D6: what a dead letter with a stack and its masks costs, without its publish.
func TestLetterAllocatesLittle(t *testing.T) {
	n := testing.Benchmark(placeLetter).AllocsPerOp()
	testkit.Check(t, n <= 45, "%d allocations a letter, want at most 45", n)
}
