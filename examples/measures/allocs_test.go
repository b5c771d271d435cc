//go:build !race

package main

import "testing"

// Promise P5, features R11, R12: a message that succeeds allocates nothing on its way through the front door. Not under
// the race detector, which makes pools forget at random; make test runs this test without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	for name, side := range map[string]func(*testing.B){"spillway": happySpillway, "with breaker and budget": happyGuarded, "with metrics": happyObserved} {
		if n := testing.Benchmark(side).AllocsPerOp(); n != 0 {
			t.Errorf("%s: %d allocations a message", name, n)
		}
	}
}

// Feature D6: what a dead letter with a stack and its masks costs, without its publish.
func TestLetterAllocatesLittle(t *testing.T) {
	if n := testing.Benchmark(placeLetter).AllocsPerOp(); n > 30 {
		t.Errorf("%d allocations a letter, want at most 30", n)
	}
}
