package crashlimit

import (
	"context"
	"errors"
	"slices"
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

// news is what the latest look at the other processes showed.
type news struct {
	mu    sync.Mutex
	looks int
	rows  map[string]deliveries.Process
	next  chan struct{} // closed by the next look
	// missed says since which look a process that left a mark is not there.
	missed map[string]int
}

func (n *news) publish(rows []deliveries.Process) {
	latest := make(map[string]deliveries.Process, len(rows))
	for _, r := range rows {
		latest[r.ID] = r
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks, n.rows = n.looks+1, latest
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

func (n *news) latest() (looks int, rows map[string]deliveries.Process, next <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.looks, n.rows, n.next
}

// gone reports whether a process that is not there has not been there since an earlier look: one look may be older than
// the process. A process that signed off took its marks along.
func (n *news) gone(process string, looks int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, known := n.missed[process]
	if !known {
		if n.missed == nil || len(n.missed) >= most {
			n.missed = make(map[string]int)
		}
		n.missed[process] = looks
	}
	return known && looks > since
}

// inquiry finds out, for one delivery, which of the processes that left marks ended.
type inquiry struct {
	limit  *Limit
	seen   map[string]*sight
	begun  time.Time
	slowed time.Duration // how rarely the slowest of them beats
}

// sight is how a process was when the inquiry met its mark.
type sight struct {
	beats int64
	there bool
}

// finding counts processes.
type finding struct {
	dead, unknown int
}

// judge counts the processes whose marks were found. What this process lived through is no death. One that beats on
// after its mark was seen lives, and is at the message still. One that is lost, or gone without taking its marks along,
// ended. Two limits of one process are one.
func (q *inquiry) judge(found []deliveries.Mark, looks int, rows map[string]deliveries.Process) (f finding) {
	var dead, unknown []string
	for _, w := range found {
		if w.Delivery == 0 { // a letter
			continue
		}
		self := processOf(w.Process)
		if self == q.limit.self {
			continue
		}
		r, there := rows[w.Process]
		s := q.seen[w.Process]
		if s == nil {
			s = &sight{beats: r.Beats, there: there}
			if q.seen == nil {
				q.seen, q.begun = make(map[string]*sight), time.Now()
			}
			q.seen[w.Process] = s
		}
		if there && !s.there { // it registered after that look
			s.beats, s.there = r.Beats, true
		}
		q.slowed = max(q.slowed, r.Interval)
		switch {
		case there && r.Lost, !there && q.limit.news.gone(w.Process, looks):
			dead = append(dead, self)
		case there && r.Beats-s.beats >= proof:
		default:
			unknown = append(unknown, self)
		}
	}
	f.dead = distinct(dead)
	f.unknown = distinct(append(unknown, dead...)) - f.dead
	return f
}

func distinct(all []string) int {
	all = slices.Clone(all)
	slices.Sort(all)
	return len(slices.Compact(all))
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

// wait waits for the next look. An error gives the message back.
func (q *inquiry) wait(c *chain.Call, next <-chan struct{}) error {
	patience := max(minInquiry, 10*max(q.slowed, q.limit.config.Heartbeat))
	timer := time.NewTimer(time.Until(q.begun.Add(patience)))
	defer timer.Stop()
	ctx := c.WaitContext()
	select {
	case <-next:
		return nil
	case <-ctx.Done():
		return chain.Requeued(errors.Join(errUndecided, context.Cause(ctx)))
	case <-timer.C: // the store does not answer
		return chain.Requeued(errUndecided)
	}
}

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
	eventCrashStoreUnavailable.Write(logger, err, nil)
}

// note takes in how a beat went.
func (o *outage) note(logger watermill.LoggerAdapter, err error) {
	if err != nil {
		o.began(logger, err)
	} else {
		o.answered(logger)
	}
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
	eventCrashStoreBack.Write(logger, nil, logging.Fields{
		logging.After: now.Sub(o.since).Round(time.Millisecond).String(), "unmarked": o.unmarked.Load(),
	})
}
