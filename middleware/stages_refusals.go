package middleware

import (
	"sync"
	"time"
)

const (
	// maxRefusal is how long a stage may refuse one message until it is believed to be the message. Whoever is given back
	// holds up those behind it, so that must end; an outage that lasts longer sets one message aside in that time.
	maxRefusal = 5 * time.Minute
	// maxRefusals bounds what is remembered. Those beyond are given back.
	maxRefusals = 1000
)

// refusals remembers since when stages refuse messages. It is of this process alone, and forgets with it.
type refusals struct {
	mu    sync.Mutex
	since map[refusal]time.Time
}

type refusal struct{ handler, id string }

// tooLong notes that a message was refused, and tells whether it has been for long. Then it begins anew.
func (r *refusals) tooLong(handler, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := refusal{handler, id}, time.Now()
	since, refused := r.since[key]
	switch {
	case refused && now.Sub(since) >= maxRefusal:
		delete(r.since, key)
		return true
	case !refused && len(r.since) < maxRefusals:
		if r.since == nil {
			r.since = make(map[refusal]time.Time)
		}
		r.since[key] = now
	}
	return false
}

// over notes that a message was taken.
func (r *refusals) over(handler, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.since) > 0 {
		delete(r.since, refusal{handler, id})
	}
}
