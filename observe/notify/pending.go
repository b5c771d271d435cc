package notify

import (
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// maxPending is the number of subjects that wait for one round. Reports of further subjects are counted by their kind.
const maxPending = 1000

// pending is what happened since the last round, summed up by its subject: it is bounded, however much happens.
type pending struct {
	wake chan struct{}

	mu      sync.Mutex
	reports map[ledger.Key]*ledger.Report
}

func newPending() *pending {
	return &pending{wake: make(chan struct{}, 1), reports: map[ledger.Key]*ledger.Report{}}
}

// add counts a report. It never waits for anything but other calls of add. say is called once for each subject and
// round.
func (p *pending) add(key ledger.Key, n int64, first, last time.Time, say func() string) {
	r := ledger.Report{Key: key, N: n, First: first, Last: last}
	if p.merge(r, false) {
		return
	}
	r.About = say() // outside of the lock: masks may be slow
	p.merge(r, true)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// merge adds a report to one of its subject. Without one it returns false, or adds the report.
func (p *pending) merge(r ledger.Report, fresh bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.reports[r.Key]
	if known == nil && len(p.reports) >= maxPending {
		r.Key, r.About = ledger.Key{Kind: string(ManyNotices), Subject: r.Kind}, ""
		r.N = max(1, r.N)
		known, fresh = p.reports[r.Key], true
	}
	if known == nil {
		if fresh {
			p.reports[r.Key] = &r
		}
		return fresh
	}
	known.N += r.N
	if r.First.Before(known.First) {
		known.First = r.First
	}
	if r.Last.After(known.Last) {
		known.Last = r.Last
	}
	return true
}

// take returns what is pending, and empties it.
func (p *pending) take() []*ledger.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*ledger.Report, 0, len(p.reports))
	for _, r := range p.reports {
		all = append(all, r)
	}
	clear(p.reports)
	return all
}

// giveBack returns what could not be written.
func (p *pending) giveBack(reports []*ledger.Report) {
	for _, r := range reports {
		p.merge(*r, true)
	}
}
