package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func BenchmarkHappyPathSpillway(b *testing.B)  { happySpillway(b) }
func BenchmarkHappyPathGuarded(b *testing.B)   { happyGuarded(b) }
func BenchmarkHappyPathWatermill(b *testing.B) { happyWatermill(b) }
func BenchmarkPlaceLetter(b *testing.B)        { placeLetter(b) }
func BenchmarkEncodeLetter(b *testing.B)       { encodeLetter(b) }

// Feature D6: the letter of the figures stays in its budget and tells its stack.
func TestPlacedLetter(t *testing.T) {
	added := bytesAdded()
	testkit.Check(t, added != 0 && added <= 16<<10, "%d bytes added", added)
	testkit.Check(t, placed().Metadata["x-failure-stack"] != "", "no stack")
}

func BenchmarkHappyPathObserved(b *testing.B)     { happyObserved(b) }
func BenchmarkBareWatermillObserved(b *testing.B) { bareWatermillObserved(b) }
