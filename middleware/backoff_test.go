package middleware

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"
)

func drawBackoff(t *rapid.T) Backoff {
	initial := rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")
	b := Backoff{
		Initial:    time.Duration(initial),
		Max:        time.Duration(rapid.Int64Range(initial, math.MaxInt64).Draw(t, "max")),
		Multiplier: rapid.Float64Range(1, 100).Draw(t, "multiplier"),
		Jitter:     Jitter(rapid.IntRange(0, int(NoJitter)).Draw(t, "jitter")),
	}
	b.setDefaults()
	if err := b.validate("Backoff"); err != nil {
		t.Fatalf("refused: %v", err)
	}
	return b
}

// Feature R1: every wait lies within what its jitter promises, over the exponential interval or the wait before, and
// none exceeds Max, whatever the configuration.
func TestWaitsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBackoff(t)
		waits := b.start()
		if rapid.Bool().Draw(t, "used before") {
			for range 5 {
				waits.NextBackOff()
			}
			waits.Reset()
		}
		interval, last := float64(b.Initial), b.Initial
		for i := range 60 {
			var low, high float64
			switch b.Jitter {
			case FullJitter:
				low, high = 0, interval
			case EqualJitter:
				low, high = interval/2, interval
			case DecorrelatedJitter:
				low, high = float64(b.Initial), min(float64(b.Max), float64(last)*b.Multiplier)
			case NoJitter:
				low, high = interval, interval
			}
			wait := waits.NextBackOff()
			slack := 1e-9*high + 1
			if w := float64(wait); w < low-slack || w > high+slack || wait > b.Max || wait < 0 {
				t.Fatalf("wait %d is %s, not within %s and %s", i, wait, time.Duration(low), time.Duration(high))
			}
			last = wait
			interval = min(math.Floor(interval*b.Multiplier), float64(b.Max)) // in whole nanoseconds
		}
	})
}

// Feature R1: drawn at their outermost, waits stay in bounds too; a Max of centuries does not overflow.
func TestWaitsAtTheEdges(t *testing.T) {
	for _, drawn := range []float64{0, math.Nextafter(1, 0)} {
		for _, limit := range []time.Duration{time.Second, math.MaxInt64 / 2, math.MaxInt64} {
			b := Backoff{Initial: time.Second, Max: limit, Multiplier: 3, Jitter: DecorrelatedJitter}
			waits := b.start().(*decorrelated)
			waits.random = func() float64 { return drawn }
			for range 100 {
				if w := waits.NextBackOff(); w < b.Initial || w > b.Max {
					t.Fatalf("drew %g: wait %s, not within %s and %s", drawn, w, b.Initial, b.Max)
				}
			}
			if drawn > 0 && waits.last < limit-limit/1000 {
				t.Errorf("the waits stopped growing at %s, Max is %s", waits.last, limit)
			}
		}
	}
}

// Feature R1: the draws are even: the mean of full jitter is half the interval, that of equal jitter three quarters.
func TestMeansOfJitter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for jitter, want := range map[Jitter]float64{FullJitter: 0.5, EqualJitter: 0.75} {
		b := Backoff{Initial: time.Second, Max: time.Second, Multiplier: 1, Jitter: jitter}
		waits := b.start().(*jittered)
		waits.random = rand.New(rand.NewPCG(seed, 1)).Float64
		const draws = 50_000
		sum := 0.0
		for range draws {
			sum += waits.NextBackOff().Seconds()
		}
		if mean := sum / draws; math.Abs(mean-want) > 0.02 {
			t.Errorf("jitter %d: the mean is %.3f of the interval, want %.3f", jitter, mean, want)
		}
	}
}

// Feature R1: the zero value is full jitter over 100 ms, doubling, at most 10 s; a long Initial carries Max with it.
func TestBackoffDefaults(t *testing.T) {
	var b Backoff
	b.setDefaults()
	if got := fmt.Sprint(b.Initial, b.Max, b.Multiplier, b.Jitter); got != "100ms 10s 2 0" {
		t.Errorf("got %s", got)
	}
	b = Backoff{Initial: time.Minute}
	b.setDefaults()
	if b.Max != time.Minute {
		t.Errorf("Max is %s", b.Max)
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
		"Jitter is 4":          {Jitter: NoJitter + 1},
		".New returns nil":     {New: func() backoff.BackOff { return nil }},
		".New returns nil ":    {New: func() backoff.BackOff { return (*backoff.ZeroBackOff)(nil) }},
		"New: panic: no, sir!": {New: func() backoff.BackOff { panic("no, sir!") }},
	} {
		b.setDefaults()
		err := b.validate("XConfig.Backoff")
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) || !strings.Contains(err.Error(), "XConfig.Backoff") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
