package wmamqp

import (
	"context"
	"errors"
	"time"
)

// The time that Close has as a whole, whatever the peer does: closeWait for an orderly end, and forceWait for what is
// left when the sockets are closed.
const (
	closeWait = 3 * time.Second
	forceWait = time.Second
)

// limits are the ends of the two parts of closing. All steps of one Close share them.
type limits struct{ orderly, all context.Context }

// newLimits begins the time of a Close. The function returned frees its timers.
func newLimits(orderly time.Duration) (limits, func()) {
	now := time.Now()
	first, cancelFirst := context.WithDeadline(context.Background(), now.Add(orderly))
	all, cancelAll := context.WithDeadline(context.Background(), now.Add(orderly+forceWait))
	return limits{first, all}, func() { cancelFirst(); cancelAll() }
}

// within reports whether done is closed before the limit ends.
func within(limit context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-limit.Done():
		return false
	}
}

var errStillClosing = errors.New("wmamqp: the connection has not ended yet: its sockets are closed, and the rest " +
	"ends by itself")

// close ends the connection, by force where the broker does not answer in time.
func (c *connection) close(left limits) error {
	c.end()
	c.sockets.refuse()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.latest.Load().Close()
		c.sockets.shut() // with one that was just dialled
		<-c.ended
	}()
	if within(left.orderly, done) {
		return nil
	}
	c.sockets.shut()
	if within(left.all, done) {
		return nil
	}
	return errStillClosing
}
