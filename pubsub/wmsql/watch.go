package wmsql

import (
	"context"
	"fmt"
	"time"
)

const (
	// watchInterval is how often the connection of a handler is checked that runs no statement.
	watchInterval = time.Second
	// watchTimeout is how long the database may take to answer.
	watchTimeout = 5 * time.Second
)

// watch checks the connection while a handler is busy elsewhere. If it is lost the transaction has ended, and the
// message's context ends too. A statement that is running finds out by itself.
func (t *transaction) watch() {
	if !t.proxy.TryLock() {
		return
	}
	defer t.proxy.Unlock()
	if t.proxy.Over() != nil || t.proxy.Reading() {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, watchTimeout)
	defer cancel()
	if err := t.conn.PingContext(ctx); err != nil && t.ctx.Err() == nil {
		t.uncounted = true
		t.endLocked(fmt.Errorf("%w: the connection is lost: %w", errOver, err))
	}
}
