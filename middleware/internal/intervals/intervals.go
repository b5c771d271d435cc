// Package intervals has the waits between attempts: middleware.Backoff, as the parts that wait use it.
package intervals

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// reserve is the time that waits keep free before the deadline of a message's context, to dead-letter the message in.
const reserve = time.Second

// MaxRetryAfter is the longest retry-after that is waited for while a message is held.
const MaxRetryAfter = 30 * time.Second

// Outlasts reports whether a wait would not leave reserve free before the deadline of ctx. Nothing is added to the
// wait, which a strategy of the user can make so long that a sum overflows.
func Outlasts(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && pause > max(time.Until(deadline), 0)-reserve
}

// Backoff is middleware.Backoff, whose fields it has.
type Backoff struct {
	Initial, Max time.Duration
	Multiplier   float64
	New          func() backoff.BackOff
}

// IsSet reports whether a field is set.
func (b *Backoff) IsSet() bool {
	return b.Initial != 0 || b.Max != 0 || b.Multiplier != 0 || b.New != nil
}

// SetDefaults sets the fields that are not set.
func (b *Backoff) SetDefaults() {
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

// Validate returns an error that names the field that is wrong.
func (b *Backoff) Validate(field string) error {
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

// Start returns the strategy for one failing message.
func (b *Backoff) Start() backoff.BackOff {
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
