// Package timing waits on behalf of a message, and writes how long something takes.
package timing

import (
	"context"
	"time"
)

// Wait waits for d, and reports whether ctx had not ended by then.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil // if both are ready, select picks one at random
	case <-ctx.Done():
		return false
	}
}
