package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

const (
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
	// maxBusy bounds the wait for a writer of another process, because a writer that waits holds the gate of this one.
	maxBusy = 30 * time.Second
)

// WhileBusy calls try again as long as its error is that another process holds a lock. It gives up with the last error
// after 30 seconds. When ctx ends it gives up with an error that wraps both. A try that fails must leave nothing
// behind.
func WhileBusy(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(maxBusy)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := try()
		if !IsBusy(err) || time.Now().After(deadline) {
			return err
		}
		if !wait.For(ctx, pause/2+rand.N(pause)) {
			return fmt.Errorf("sqlite: wait for a writer of another process: %w: %w", ctx.Err(), err)
		}
	}
}

// IsBusy reports whether err, of a statement of our own, says that another connection holds a lock: SQLITE_BUSY or
// SQLITE_LOCKED. It reads the text, which comes from SQLite itself and so is the same in every driver.
func IsBusy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "is locked")
}
