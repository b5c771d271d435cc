package redrive

import (
	"time"
)

// Leasing returns the configuration of a drain whose leases last for that long.
func (c DrainConfig) Leasing(lease time.Duration) DrainConfig {
	c.lease = lease
	return c
}
