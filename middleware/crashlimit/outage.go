package crashlimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// outage is a time in which the store fails. No delivery asks it then: messages are handled unmarked. The beats go on
// asking, and end it.
type outage struct {
	on       atomic.Bool
	unmarked atomic.Int64 // deliveries meanwhile

	mu    sync.Mutex
	since time.Time
	until time.Time     // it lasts at least
	wait  time.Duration // how long it lasts at least
}

const (
	// An outage that comes back within this time lasts twice as long as the one before: beats may succeed where marks
	// fail.
	comesBackWithin = time.Minute
	maxOutageWait   = time.Minute
)

func (o *outage) lasts() bool { return o.on.Load() }

// pass reports whether a delivery goes on unmarked.
func (o *outage) pass() bool {
	if !o.on.Load() {
		return false
	}
	o.unmarked.Add(1)
	return true
}

// began notes that a statement failed.
func (o *outage) began(logger watermill.LoggerAdapter, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on.Load() {
		return
	}
	now := time.Now()
	if now.Sub(o.until) > comesBackWithin {
		o.wait = 0
	}
	o.since, o.until = now, now.Add(o.wait)
	o.wait = min(max(2*o.wait, time.Second), maxOutageWait)
	o.unmarked.Store(0)
	o.on.Store(true)
	logging.CrashStoreAway.Write(logger, err, nil)
}

// answered notes that the store did all that a beat asked.
func (o *outage) answered(logger watermill.LoggerAdapter) {
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Before(o.until) {
		return
	}
	o.until = now
	o.on.Store(false)
	logging.CrashStoreBack.Write(logger, nil, logging.Fields{
		logging.After: now.Sub(o.since).Round(time.Millisecond).String(), "unmarked": o.unmarked.Load(),
	})
}
