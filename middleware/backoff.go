package middleware

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Jitter says how a wait is drawn at random, so that messages that failed together do not come back together. The names
// and formulas are those of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
type Jitter uint8

const (
	// FullJitter draws from 0 to the exponential interval: the least load on what is recovering.
	FullJitter Jitter = iota
	// EqualJitter draws from half the interval to the whole: never less than half.
	EqualJitter
	// DecorrelatedJitter draws from Initial to Multiplier times the wait before, at most Max. The original's
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
	// Multiplier makes each interval from the one before. Default: 2.
	Multiplier float64
	// Jitter says how a wait is drawn from the interval. Default: FullJitter.
	Jitter Jitter
	// New replaces all of the above by a strategy of your own, one for each class of error of a failing message; backoff.Stop ends
	// the retries.
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
		return fmt.Errorf("middleware: %s: Initial (%s) must be positive and at most Max (%s)", field, b.Initial, b.Max)
	case !(b.Multiplier >= 1) || math.IsInf(b.Multiplier, 1): // NaN is neither
		return fmt.Errorf("middleware: %s: Multiplier is %g: the waits would shrink or end; it must be at least 1 and finite", field, b.Multiplier)
	case b.Jitter > NoJitter:
		return fmt.Errorf("middleware: %s: Jitter %d is unknown", field, b.Jitter)
	case b.New != nil:
		return b.probe(field)
	}
	return nil
}

// probe finds out at construction what would end every retry in a panic.
func (b *Backoff) probe(field string) error {
	return safecall.Call("middleware: "+field+".New", func() error {
		if safecall.IsNil(b.New()) {
			return fmt.Errorf("middleware: %s.New returns nil", field)
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

// jittered keeps a fixed share of each interval and draws the rest.
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
	} else { // never through a sum or a conversion, which overflow where Max is centuries
		d.last = d.max
	}
	return d.last
}

func (d *decorrelated) Reset() { d.last = d.initial }
