package wmamqp

import (
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// beginAgain is the wait before another attempt to consume, when the broker refused one.
const beginAgain = time.Second

// resuming is a subscription whose consumers could not begin again. The log has one line when that begins, and one when
// it is over.
type resuming struct {
	mu      sync.Mutex
	failing int // consumers
	since   time.Time
}

// notResumed logs a failed attempt of the consumer to begin again.
func (c *consumer) notResumed(err error) {
	if c.failing {
		logging.ConsumeStillAway.Write(c.sub.config.Logger, err,
			logging.Fields{logging.Queue: c.sub.queue, logging.Wait: beginAgain})
		return
	}
	c.failing = true
	r := &c.sub.resuming
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing++; r.failing == 1 {
		r.since = time.Now()
		logging.ConsumeNotResumed.Write(c.sub.config.Logger, err,
			logging.Fields{logging.Queue: c.sub.queue, logging.Wait: beginAgain})
	}
}

// resumed notes that the consumer has begun.
func (c *consumer) resumed() {
	if !c.failing {
		return
	}
	c.failing = false
	r := &c.sub.resuming
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing--; r.failing == 0 {
		logging.ConsumeResumed.Write(c.sub.config.Logger, nil,
			logging.Fields{logging.Queue: c.sub.queue, "lasted": time.Since(r.since).Round(time.Millisecond).String()})
	}
}
