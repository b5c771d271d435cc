package middleware

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/timing/intervals"
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

// intervals is what the waits are made of.
func (b *Backoff) intervals() *intervals.Backoff { return (*intervals.Backoff)(b) }
