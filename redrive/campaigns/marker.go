package campaigns

import (
	"sync"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// marker marks the letters that several goroutines have published in one transaction. Each waits for its own, so that no more
// letters are published and not marked than there are goroutines.
type marker struct {
	mu     sync.Mutex
	queues map[letters.Status]*queue
}

// queue is letters that get the same status.
type queue struct {
	busy    bool // one goroutine marks for all
	waiting []*marking
}

type marking struct {
	taken  letters.Taken
	done   chan struct{}
	marked bool
	err    error
}

// mark reports whether the letter was marked, or its lease was lost.
func (m *marker) mark(t letters.Taken, write func([]letters.Taken) ([]letters.Taken, error), status letters.Status) (marked bool, err error) {
	own := &marking{taken: t, done: make(chan struct{})}
	m.mu.Lock()
	if m.queues == nil {
		m.queues = make(map[letters.Status]*queue)
	}
	q := m.queues[status]
	if q == nil {
		q = new(queue)
		m.queues[status] = q
	}
	q.waiting = append(q.waiting, own)
	lead := !q.busy
	q.busy = true
	for lead {
		some := q.waiting
		if q.waiting = nil; len(some) == 0 {
			q.busy, lead = false, false
			break
		}
		m.mu.Unlock()
		writeAll(some, write)
		m.mu.Lock()
	}
	m.mu.Unlock()
	<-own.done
	return own.marked, own.err
}

func writeAll(some []*marking, write func([]letters.Taken) ([]letters.Taken, error)) {
	all := make([]letters.Taken, len(some))
	for i, one := range some {
		all[i] = one.taken
	}
	marked, err := write(all)
	is := make(map[int64]bool, len(marked))
	for _, t := range marked {
		is[t.Seq] = true
	}
	for _, one := range some {
		one.marked, one.err = is[one.taken.Seq], err
		close(one.done)
	}
}
