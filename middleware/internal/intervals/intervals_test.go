package intervals

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func drawBackoff(t *rapid.T) Backoff {
	initial := rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")
	b := Backoff{
		Initial:    time.Duration(initial),
		Max:        time.Duration(rapid.Int64Range(initial, math.MaxInt64).Draw(t, "max")),
		Multiplier: rapid.Float64Range(1, 100).Draw(t, "multiplier"),
	}
	b.SetDefaults()
	err := b.Validate("Backoff")
	testkit.Require(t, err == nil, "refused: %v", err)
	return b
}

// Feature R1: every wait lies within the exponential interval, and none exceeds Max, whatever the configuration.
func TestWaitsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBackoff(t)
		waits := b.Start()
		if rapid.Bool().Draw(t, "used before") {
			for range 5 {
				waits.NextBackOff()
			}
			waits.Reset()
		}
		interval := float64(b.Initial)
		for i := range 60 {
			wait, slack := waits.NextBackOff(), 1e-9*interval+1
			testkit.Require(t, float64(wait) <= interval+slack && wait <= b.Max && wait >= 0,
				"wait %d is %s, not within %s", i, wait, time.Duration(interval))
			interval = min(math.Floor(interval*b.Multiplier), float64(b.Max)) // in whole nanoseconds
		}
	})
}

// Feature R1: the draws are even: their mean is half the interval, and a Max of centuries does not overflow.
func TestMeanOfJitter(t *testing.T) {
	random := testkit.Random(t)
	for _, initial := range []time.Duration{time.Second, math.MaxInt64} {
		b := Backoff{Initial: initial, Max: initial, Multiplier: 1}
		waits := b.Start().(*jittered)
		waits.random = random.Float64
		const draws = 50_000
		sum := 0.0
		for range draws {
			sum += float64(waits.NextBackOff()) / float64(initial)
		}
		mean := sum / draws
		testkit.Check(t, math.Abs(mean-0.5) <= 0.02, "the mean is %.3f of %s, want 0.5", mean, initial)
	}
}

// Conventions: a backoff that makes no sense is an error at construction, and names its field.
func TestBackoffValidation(t *testing.T) {
	for want, b := range map[string]Backoff{
		"Initial (-1s)":        {Initial: -time.Second},
		"Max (1ms)":            {Max: time.Millisecond},
		"Max (-1s)":            {Max: -time.Second},
		"Multiplier is 0.5":    {Multiplier: 0.5},
		"Multiplier is -2":     {Multiplier: -2},
		"Multiplier is NaN":    {Multiplier: math.NaN()},
		"Multiplier is +Inf":   {Multiplier: math.Inf(1)},
		".New returns nil":     {New: func() backoff.BackOff { return nil }},
		".New returns nil ":    {New: func() backoff.BackOff { return (*backoff.ZeroBackOff)(nil) }},
		"New: panic: no, sir!": {New: func() backoff.BackOff { panic("no, sir!") }},
	} {
		b.SetDefaults()
		err := b.Validate("XConfig.Backoff")
		testkit.Check(t, err != nil && strings.Contains(err.Error(), strings.TrimSpace(want)) &&
			strings.Contains(err.Error(), "XConfig.Backoff"), "got %v, want %q", err, want)
	}
}
