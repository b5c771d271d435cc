package crashlimit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// staleAfter is how many beats a process may miss.
const staleAfter = 3

// detector decides from what it sees of other processes whether deliveries are to be marked. It compares no clocks:
// what counts is that a process beats, seen on its own clock.
type detector struct {
	interval, quietAfter time.Duration
	known                map[string]*sighting
	begun                bool      // that it has looked before
	until                time.Time // marking lasts at least
}

// sighting is what is known of another process.
type sighting struct {
	beats    int64
	changed  time.Time
	unmoved  int   // looks since then
	unproven bool  // it was there at the first look, and has not shown since that it lives
	first    int64 // how many beats it had then
	lost     bool
}

// proof is how many beats show that a process lives. One may be that of a process which ended while its last statement
// was still on its way.
const proof = 2

// look takes in what a look showed. It returns those that have stopped beating, and those that were lost so long ago
// that they can be forgotten.
func (d *detector) look(now time.Time, rows []deliveries.Process) (stale, forgotten []deliveries.Process) {
	seen := make(map[string]*sighting, len(rows))
	for _, r := range rows {
		if r.Lost && r.LostFor >= d.quietAfter {
			forgotten = append(forgotten, r)
			continue
		}
		s := d.sight(now, r)
		seen[r.ID] = s
		if !r.Lost && s.unmoved >= staleAfter && now.Sub(s.changed) >= staleAfter*max(d.interval, r.Interval) {
			stale = append(stale, r)
		}
	}
	d.known, d.begun = seen, true // a process that is gone has signed off
	return stale, forgotten
}

func (d *detector) sight(now time.Time, r deliveries.Process) *sighting {
	s := d.known[r.ID]
	switch {
	case s == nil:
		// A process that was there before may be what is left of one that ended a moment ago.
		s = &sighting{beats: r.Beats, changed: now, unproven: !d.begun, first: r.Beats}
	case s.beats != r.Beats:
		s.beats, s.changed, s.unmoved = r.Beats, now, 0
		s.unproven = s.unproven && r.Beats-s.first < proof
	default:
		s.unmoved++
	}
	if r.Lost && !s.lost {
		d.alarm(now.Add(d.quietAfter - r.LostFor))
	}
	s.lost = r.Lost
	return s
}

// lost takes in that this detector was the one that found a process lost.
func (d *detector) lost(now time.Time, id string) {
	d.known[id].lost = true
	d.alarm(now.Add(d.quietAfter))
}

func (d *detector) alarm(until time.Time) {
	if until.After(d.until) {
		d.until = until
	}
}

// marking reports whether deliveries are to be marked.
func (d *detector) marking(now time.Time) bool {
	if now.Before(d.until) {
		return true
	}
	for _, s := range d.known {
		if s.unproven && !s.lost {
			return true
		}
	}
	return false
}

// inquiry finds out, for one delivery, which of the processes that left marks ended.
type inquiry struct {
	limit  *Limit
	seen   map[string]int64 // the heartbeats of a process when its mark was first seen
	begun  time.Time
	slowed time.Duration // how rarely the slowest of them beats
}

// judge counts the processes whose marks were found: those that ended, and those of which that is not known. What this
// process lived through is no death. One that beats on after its mark was seen lives, and is at the message still. Two
// limits of one process are one.
func (q *inquiry) judge(found []deliveries.Found) (dead, unknown int) {
	ended, open := map[string]bool{}, map[string]bool{}
	for _, f := range found {
		self := processOf(f.Process)
		if f.Delivery == 0 || self == q.limit.self { // a letter, or this process
			continue
		}
		first, known := q.seen[f.Process]
		if !known {
			first = f.Beats
			q.seen[f.Process] = first
		}
		q.slowed = max(q.slowed, f.Interval)
		switch {
		case f.Ended:
			ended[self] = true
		case f.Beats-first < proof:
			open[self] = true
		}
	}
	for self := range ended {
		delete(open, self)
	}
	return len(ended), len(open)
}

// processOf returns what the ids of all limits in a process have in common.
func processOf(id string) string {
	self, _, _ := strings.Cut(id, ".")
	return self
}

var errUndecided = errors.New("crashlimit: it is not known yet whether the processes that had this message crashed: " +
	"the message is requeued")

// minInquiry is how long a delivery waits for an answer, at least.
const minInquiry = time.Minute

// wait waits for a heartbeat. An error gives the message back.
func (q *inquiry) wait(c *chain.Call) error {
	patience := max(minInquiry, 10*max(q.slowed, q.limit.config.Heartbeat))
	if time.Since(q.begun) >= patience {
		return chain.Requeued(errUndecided)
	}
	timer := time.NewTimer(q.limit.config.Heartbeat)
	defer timer.Stop()
	ctx := c.WaitContext()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return chain.Requeued(errors.Join(errUndecided, context.Cause(ctx)))
	}
}

// outage is a time in which the store fails. No delivery asks it then: messages are handled unmarked. The beats go on
// asking, and end it.
type outage struct {
	on       atomic.Bool
	unmarked atomic.Int64 // deliveries meanwhile

	mu    sync.Mutex
	since time.Time
}

// minOutage is how long an outage lasts at least: beats may succeed where marks fail.
const minOutage = 10 * time.Second

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
	o.since = time.Now()
	o.unmarked.Store(0)
	o.on.Store(true)
	eventCrashStoreUnavailable.Write(logger, err, nil)
}

// note takes in how a beat went.
func (o *outage) note(logger watermill.LoggerAdapter, err error) {
	if err != nil {
		o.began(logger, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	lasted := time.Since(o.since)
	if !o.on.Load() || lasted < minOutage {
		return
	}
	o.on.Store(false)
	eventCrashStoreBack.Write(logger, nil, logging.Fields{
		logging.After: lasted.Round(time.Millisecond).String(), "unmarked": o.unmarked.Load(),
	})
}
