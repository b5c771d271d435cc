package redrive

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// CheckPublisher is checkPublisher.
func (h *Handler) CheckPublisher(pub message.Publisher) error { return h.checkPublisher(pub) }

// Leasing returns the configuration of a drain whose leases last for that long.
func (c DrainConfig) Leasing(lease time.Duration) DrainConfig {
	c.lease = lease
	return c
}
