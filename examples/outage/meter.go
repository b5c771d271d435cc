package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// meter notes when webhooks were handled, and what stood around them.
type meter struct {
	letters atomic.Int64
	probes  atomic.Int64
	opened  atomic.Int64 // how often the breaker opened

	mu      sync.Mutex
	handled []time.Time
}

func (m *meter) note() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handled = append(m.handled, time.Now())
}

// changed counts what the breaker does.
func (m *meter) changed(change breaker.Change) {
	switch {
	case change.To == circuit.HalfOpen:
		m.probes.Add(1)
	case change.To == circuit.Open && change.From != circuit.HalfOpen:
		m.opened.Add(1)
	}
}

// count returns how many webhooks were handled so far.
func (m *meter) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.handled)
}

// fullRate is the time in which the rate is measured.
const fullRate = 500 * time.Millisecond

// backAfter returns how long after moment the webhooks of the last fullRate were as many as are published in that time.
// It reports false if they never were.
func (m *meter) backAfter(moment time.Time, perSecond int) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return backAfter(m.handled, moment, perSecond)
}

func backAfter(handled []time.Time, moment time.Time, perSecond int) (time.Duration, bool) {
	handled = slices.DeleteFunc(slices.SortedFunc(slices.Values(handled), time.Time.Compare), func(at time.Time) bool {
		return at.Before(moment)
	})
	needed := max(1, int(float64(perSecond)*fullRate.Seconds()))
	for i := needed - 1; i < len(handled); i++ {
		if handled[i].Sub(handled[i-needed+1]) <= fullRate {
			return handled[i].Sub(moment), true
		}
	}
	return 0, false
}
