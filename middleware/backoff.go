package middleware

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Jitter is how a wait is drawn at random, so that messages that failed together do not come back together. The names
// and formulas are from Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Jitter uint8

const (
	// FullJitter draws a wait from 0 to the exponential interval. It loads a recovering service least.
	FullJitter Jitter = iota
	// EqualJitter draws a wait from half the interval to the whole interval.
	EqualJitter
	// DecorrelatedJitter draws a wait from Initial to Multiplier times the wait before, at most Max. Brooker's
	// multiplier is 3.
	DecorrelatedJitter
	// NoJitter waits the interval itself.
	NoJitter
)

// Backoff says how long to wait between attempts. The zero value is full jitter over 100 ms, doubling, at most 10 s.
type Backoff struct {
	// Initial is the first interval. Default: 100 ms.
	Initial time.Duration
	// Max bounds every interval. Default: 10 s, or Initial if that is longer.
	Max time.Duration
	// Multiplier times an interval is the next interval. Default: 2.
	Multiplier float64
	// Jitter is how a wait is drawn from the interval. Default: FullJitter.
	Jitter Jitter
	// New returns a strategy of your own, which replaces all fields above. It is called once for each failing message
	// and class of error. If the strategy returns backoff.Stop, the retries end. Default: none.
	New func() backoff.BackOff
}

func (b *Backoff) isSet() bool {
	return b.Initial != 0 || b.Max != 0 || b.Multiplier != 0 || b.Jitter != FullJitter || b.New != nil
}

func (b *Backoff) setDefaults() {
	if b.Initial == 0 {
		b.Initial = 100 * time.Millisecond
	}
	if b.Max == 0 {
		b.Max = max(10*time.Second, b.Initial)
	}
	if b.Multiplier == 0 {
		b.Multiplier = 2
	}
}

func (b *Backoff) validate(field string) error {
	switch {
	case b.Initial < 0 || b.Max < b.Initial:
		return fmt.Errorf("middleware: %s: Initial (%s) must be positive, and at most Max (%s)", field, b.Initial, b.Max)
	case !(b.Multiplier >= 1) || math.IsInf(b.Multiplier, 1): // NaN is neither
		return fmt.Errorf("middleware: %s: Multiplier is %g: it must be finite and at least 1, or the waits would shrink or end", field, b.Multiplier)
	case b.Jitter > NoJitter:
		return fmt.Errorf("middleware: %s: Jitter is %d, which is unknown: give one of the constants", field, b.Jitter)
	case b.New != nil:
		return b.probe(field)
	}
	return nil
}

// probe finds at construction what would end every retry in a panic.
func (b *Backoff) probe(field string) error {
	return safecall.Call("middleware: "+field+".New", func() error {
		if safecall.IsNil(b.New()) {
			return fmt.Errorf("middleware: %s.New returns nil: it must return a backoff.BackOff", field)
		}
		return nil
	})
}

// start returns the strategy for one failing message.
func (b *Backoff) start() backoff.BackOff {
	if b.New != nil {
		return b.New()
	}
	if b.Jitter == DecorrelatedJitter {
		return &decorrelated{initial: b.Initial, max: b.Max, multiplier: b.Multiplier, last: b.Initial, random: rand.Float64}
	}
	intervals := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Initial), backoff.WithMaxInterval(b.Max), backoff.WithMultiplier(b.Multiplier),
		backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	switch b.Jitter {
	case FullJitter:
		return &jittered{BackOff: intervals, fixed: 0, random: rand.Float64}
	case EqualJitter:
		return &jittered{BackOff: intervals, fixed: 0.5, random: rand.Float64}
	}
	return intervals
}

// jittered waits a fixed share of each interval, and a random part of the rest.
type jittered struct {
	backoff.BackOff
	fixed  float64
	random func() float64
}

func (j *jittered) NextBackOff() time.Duration {
	interval := float64(j.BackOff.NextBackOff())
	return time.Duration(interval*j.fixed + interval*(1-j.fixed)*j.random())
}

type decorrelated struct {
	initial, max, last time.Duration
	multiplier         float64
	random             func() float64
}

func (d *decorrelated) NextBackOff() time.Duration {
	span := max(float64(d.last)*d.multiplier-float64(d.initial), 0)
	if drawn := span * d.random(); drawn < float64(d.max-d.initial) {
		d.last = d.initial + time.Duration(drawn)
	} else { // no sum and no conversion, which overflow if Max is centuries
		d.last = d.max
	}
	return d.last
}

func (d *decorrelated) Reset() { d.last = d.initial }
