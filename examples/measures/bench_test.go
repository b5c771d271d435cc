package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func BenchmarkHappyPathSpillway(b *testing.B)  { happySpillway(b) }
func BenchmarkHappyPathGuarded(b *testing.B)   { happyGuarded(b) }
func BenchmarkHappyPathWatermill(b *testing.B) { happyWatermill(b) }
func BenchmarkPlaceLetter(b *testing.B)        { placeLetter(b) }
func BenchmarkEncodeLetter(b *testing.B)       { encodeLetter(b) }

// Feature D6: the letter of the figures stays in its budget and tells its stack.
func TestPlacedLetter(t *testing.T) {
	if added := bytesAdded(); added == 0 || added > 16<<10 {
		t.Errorf("%d bytes added", added)
	}
	if placed().Metadata["x-failure-stack"] == "" {
		t.Error("no stack")
	}
}

func BenchmarkHappyPathObserved(b *testing.B)     { happyObserved(b) }
func BenchmarkBareWatermillObserved(b *testing.B) { bareWatermillObserved(b) }
