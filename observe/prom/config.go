package prom

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// Config configures Metrics. Registerer is required.
type Config struct {
	// Registerer takes the metrics. Use prometheus.WrapRegistererWith for labels of your own, such as the service if
	// several channels share a registry: two Metrics with equal labels cannot be in one registry.
	Registerer prometheus.Registerer
	// MaxValues is the largest number of values of each label; all others are "other". Default: 200. At most 10,000.
	MaxValues int
	// Interval is the least time between two queries of the dead-letter store, and of each other source: one instance
	// of the service asks, and the others read its answer. Give all instances the same. Default: 30 s.
	Interval time.Duration
	// Timeout bounds such a query, and so how long a scrape waits for the database. It must be below the scrape timeout
	// of Prometheus, which is 10 s by default. Default: 5 s.
	Timeout time.Duration
}

func (c *Config) setDefaults() {
	if c.MaxValues == 0 {
		c.MaxValues = 200
	}
	if c.Interval == 0 {
		c.Interval = 30 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
}

func (c *Config) validate() error {
	if safecall.IsNil(c.Registerer) {
		return errors.New("prom: Config.Registerer is nil: give a registry, such as prometheus.DefaultRegisterer")
	}
	if c.MaxValues < 1 || c.MaxValues > 10_000 {
		return fmt.Errorf("prom: Config.MaxValues is %d: it must be 1 to 10,000", c.MaxValues)
	}
	if c.Interval < 0 || c.Timeout < 0 {
		return fmt.Errorf("prom: Config.Interval (%s) and Timeout (%s) must not be negative", c.Interval, c.Timeout)
	}
	return nil
}

// maxCauses is how many causes have series of their own, those with the most letters: more do not fit a page. The
// letters of the others are the cause "other".
const maxCauses = 20

// stale is how long the series of a source keep their last values while the database does not answer: for longer than
// it takes to begin again, and shorter than a person takes to look.
const stale = 5 * time.Minute

// seconds are the upper bounds of the histogram of attempts: from a lookup in memory to the timeouts of most servers.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
