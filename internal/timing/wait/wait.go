// Package wait waits on behalf of a message.
package wait

import (
	"context"
	"time"
)

// For waits for d, and reports whether ctx had not ended by then.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil // if both are ready, select picks one at random
	case <-ctx.Done():
		return false
	}
}
