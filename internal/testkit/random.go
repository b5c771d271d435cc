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
