package wmsql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

const (
	// watchInterval is how often the connection of a handler that says nothing is looked after.
	watchInterval = time.Second
	// watchTimeout is how long the database may take to answer.
	watchTimeout = 5 * time.Second
)

// watch finds out whether there is still a connection, while a handler is busy elsewhere. Without one the transaction has
// ended, and the message's context should too. A statement that is running finds out by itself.
func (t *transaction) watch() {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	pinger, ok := t.conn.(driver.Pinger)
	if !ok || t.over != nil || t.reading > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, watchTimeout)
	defer cancel()
	if err := pinger.Ping(ctx); err != nil && t.ctx.Err() == nil {
		t.uncounted = true
		t.endLocked(fmt.Errorf("%w: the connection is lost: %w", errOver, err))
	}
}
