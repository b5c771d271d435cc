package prom

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Config configures Metrics. Registerer is required.
type Config struct {
	// Registerer takes the metrics. Use prometheus.WrapRegistererWith for labels of your own, such as the service if
	// several channels share a registry: two Metrics with equal labels cannot be in one registry.
	Registerer prometheus.Registerer
	// Buckets are the upper bounds of the histogram of attempts, in seconds. Default: 0.001 to 60.
	Buckets []float64
	// MaxValues is the largest number of values of each label; all others are "other". Default: 200. At most 10,000.
	MaxValues int
	// MaxCauses is the largest number of causes whose letters have series of their own, those with the most letters; the
	// letters of the others are the cause "other". Default: 20. At most 100.
	MaxCauses int
	// Interval is the least time between two queries of the dead-letter store, and of each other source: one instance of
	// the service asks, and the others read its answer. Give all instances the same. Default: 30 s.
	Interval time.Duration
	// Timeout bounds such a query, and so how long a scrape waits for the database. It must be below the scrape timeout of
	// Prometheus, which is 10 s by default. Default: 5 s.
	Timeout time.Duration
	// Stale is how long the series of a source keep their last values while the database does not answer. Default: 5 min.
	Stale time.Duration
}

func (c *Config) setDefaults() {
	if c.Buckets == nil {
		c.Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	}
	if c.MaxValues == 0 {
		c.MaxValues = 200
	}
	if c.MaxCauses == 0 {
		c.MaxCauses = 20
	}
	if c.Interval == 0 {
		c.Interval = 30 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Stale == 0 {
		c.Stale = 5 * time.Minute
	}
}

func (c *Config) validate() error {
	if safecall.IsNil(c.Registerer) {
		return errors.New("prom: Config.Registerer is nil: give a registry, such as prometheus.DefaultRegisterer")
	}
	if len(c.Buckets) > 0 && !(c.Buckets[0] > 0) {
		return fmt.Errorf("prom: Config.Buckets[0] is %g: give rising bounds above 0, in seconds", c.Buckets[0])
	}
	for i := 1; i < len(c.Buckets); i++ {
		if !(c.Buckets[i] > c.Buckets[i-1]) {
			return fmt.Errorf("prom: Config.Buckets[%d] is %g, and the one before is %g: give rising bounds, in seconds", i,
				c.Buckets[i], c.Buckets[i-1])
		}
	}
	if c.MaxValues < 1 || c.MaxValues > 10_000 {
		return fmt.Errorf("prom: Config.MaxValues is %d: it must be 1 to 10,000", c.MaxValues)
	}
	if c.MaxCauses < 1 || c.MaxCauses > 100 {
		return fmt.Errorf("prom: Config.MaxCauses is %d: it must be 1 to 100", c.MaxCauses)
	}
	if c.Interval < 0 || c.Timeout < 0 || c.Stale < 0 {
		return fmt.Errorf("prom: Config.Interval (%s), Timeout (%s) and Stale (%s) must not be negative", c.Interval,
			c.Timeout, c.Stale)
	}
	return nil
}
