package middleware

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// Backoff says how long to wait between attempts: a time drawn from 0 to an interval that grows, so that messages that
// failed together do not come back together. That is the full jitter of Marc Brooker, "Exponential Backoff And Jitter",
// AWS Architecture Blog, 2015, which loads a recovering service least. The zero value draws from 100 ms, doubling, at
// most 10 s.
type Backoff struct {
	// Initial is the first interval. Default: 100 ms.
	Initial time.Duration
	// Max bounds every interval. Default: 10 s, or Initial if that is longer.
	Max time.Duration
	// Multiplier times an interval is the next interval. Default: 2.
	Multiplier float64
	// New returns a strategy of your own, which replaces all fields above. It is called once for each failing message
	// and class of error. If the strategy returns backoff.Stop, the retries end. Default: none.
	New func() backoff.BackOff
}

func (b *Backoff) isSet() bool {
	return b.Initial != 0 || b.Max != 0 || b.Multiplier != 0 || b.New != nil
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
		return fmt.Errorf("middleware: %s: Initial (%s) must be positive, and at most Max (%s)", field, b.Initial,
			b.Max)
	case !(b.Multiplier >= 1) || math.IsInf(b.Multiplier, 1): // NaN is neither
		return fmt.Errorf("middleware: %s: Multiplier is %g: it must be finite and at least 1, or the waits would shrink or end", field, b.Multiplier)
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
	intervals := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Initial), backoff.WithMaxInterval(b.Max), backoff.WithMultiplier(b.Multiplier),
		backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	return &jittered{BackOff: intervals, random: rand.Float64}
}

// jittered waits a random part of each interval.
type jittered struct {
	backoff.BackOff
	random func() float64
}

func (j *jittered) NextBackOff() time.Duration {
	return time.Duration(float64(j.BackOff.NextBackOff()) * j.random())
}
