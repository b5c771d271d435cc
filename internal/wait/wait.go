// Package wait waits on behalf of a message.
package wait

import (
	"context"
	"time"
)

// For waits for d and tells whether ctx lasted that long.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil // where both are ready, select draws lots
	case <-ctx.Done():
		return false
	}
}
