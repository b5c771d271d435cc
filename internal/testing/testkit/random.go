package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// SeedVariable names the environment variable whose value Random takes for its seed.
const SeedVariable = "SPILLWAY_SEED"

// Random returns a random source whose seed is in the test's log. SPILLWAY_SEED repeats it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv(SeedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s is %q: give a number", SeedVariable, given)
		}
	}
	t.Logf("%s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// ChaosVariable names the environment variable that multiplies how long campaigns of random events last.
const ChaosVariable = "SPILLWAY_CHAOS"

// Campaign returns n times the value of SPILLWAY_CHAOS, which is 1 by default.
func Campaign(t testing.TB, n int) int {
	t.Helper()
	given := os.Getenv(ChaosVariable)
	if given == "" {
		return n
	}
	times, err := strconv.Atoi(given)
	if err != nil || times < 1 {
		t.Fatalf("%s is %q: give a number of at least 1", ChaosVariable, given)
	}
	return n * times
}

// InBubble lets rapid run inside of synctest.Test, where asking for the test's deadline panics.
type InBubble struct{ testing.TB }
