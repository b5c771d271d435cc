package crashlimit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// news is what the latest look at the other processes showed.
type news struct {
	mu    sync.Mutex
	looks int
	rows  map[string]row
	next  chan struct{} // closed by the next look
	// missed says since which look a process that left a mark is not there.
	missed map[string]int
}

func (n *news) publish(rows []row) {
	latest := make(map[string]row, len(rows))
	for _, r := range rows {
		latest[r.id] = r
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks, n.rows = n.looks+1, latest
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

func (n *news) latest() (looks int, rows map[string]row, next <-chan struct{}) {
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
func (q *inquiry) judge(found []written, looks int, rows map[string]row) (f finding) {
	var dead, unknown []string
	for _, w := range found {
		if w.delivery == 0 { // a letter
			continue
		}
		self := processOf(w.process)
		if self == q.limit.self {
			continue
		}
		r, there := rows[w.process]
		s := q.seen[w.process]
		if s == nil {
			s = &sight{beats: r.beats, there: there}
			if q.seen == nil {
				q.seen, q.begun = make(map[string]*sight), time.Now()
			}
			q.seen[w.process] = s
		}
		if there && !s.there { // it registered after that look
			s.beats, s.there = r.beats, true
		}
		q.slowed = max(q.slowed, r.interval)
		switch {
		case there && r.lost, !there && q.limit.news.gone(w.process, looks):
			dead = append(dead, self)
		case there && r.beats-s.beats >= proof:
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
