//go:build !race

package main

import "testing"

// Promise P5: a message that succeeds allocates nothing on its way through the front door. Not under the race detector,
// which makes pools forget at random; make test runs this test without it.
func TestHappyPathAllocatesNothing(t *testing.T) {
	result := testing.Benchmark(happySpillway)
	if n := result.AllocsPerOp(); n != 0 {
		t.Errorf("%d allocations a message", n)
	}
}
