package campaigns

import (
	"context"
	"time"
)

// Tuned returns the configuration with other bounds than the usual ones. 0 keeps a bound.
func (c WorkerConfig) Tuned(batch, unmarked, attempts int) WorkerConfig {
	c.batch, c.unmarked, c.attempts = batch, unmarked, attempts
	return c
}

// Look lets the policies decide once, as a worker does now and then.
func (c *Campaigns) Look(ctx context.Context) error {
	r := &rounds{all: c, worker: &Worker{all: c}, policyAt: make(map[string]time.Time)}
	return r.policies(ctx)
}
