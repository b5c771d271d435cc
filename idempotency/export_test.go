package idempotency

import "time"

// RequeueAfter is how long a receiver of config holds a message whose key is leased, before it is given back.
func RequeueAfter(config *ReceiverConfig) *time.Duration { return &config.requeueAfter }
