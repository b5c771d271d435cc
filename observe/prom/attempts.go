package prom

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/internal/few"
)

// place is where attempts are made.
type place struct{ topic, handler string }

// attempts is the collector of attempts. A success is the only event of the happy path, so it costs two additions: the
// number of successes is the sum of their buckets, and no label is looked up.
type attempts struct {
	labels       *bounded
	most         int // places
	bounds       []float64
	nanoseconds  []int64 // the bounds
	total, times *prometheus.Desc

	known  atomic.Pointer[map[place]*series]     // copied on write
	recent [recentPlaces]atomic.Pointer[visited] // of known, by the lengths of their names
	mu     sync.Mutex
	all    []*series
}

// recentPlaces is a power of two.
const recentPlaces = 16

// visited is an entry of attempts.recent.
type visited struct {
	place
	series *series
}

// series are those of the attempts in one place.
type series struct {
	of                place // as in the labels
	succeeded, failed durations
	outcomes          [classify.ClassAborted + 1]atomic.Uint64
}

// durations is a histogram.
type durations struct {
	buckets []atomic.Uint64 // one more than there are bounds
	sum     atomic.Int64    // nanoseconds
}

func (d *durations) add(bucket int, elapsed time.Duration) {
	d.buckets[bucket].Add(1)
	d.sum.Add(int64(elapsed))
}

func newAttempts(labels *bounded, most int, bounds []float64) *attempts {
	a := &attempts{labels: labels, most: most,
		total: newDesc("attempts_total", "Calls of handlers, by their outcome: success, or the class of the error.",
			"topic",
			"handler", "outcome"),
		times: newDesc("attempt_duration_seconds", "How long a call of a handler took.", "topic", "handler"),
	}
	for _, b := range bounds {
		if !math.IsInf(b, 1) { // it is there anyway
			a.bounds, a.nanoseconds = append(a.bounds, b), append(a.nanoseconds, int64(min(math.Round(b*1e9), 1<<62)))
		}
	}
	a.known.Store(&map[place]*series{})
	return a
}

// bucket returns the first bucket whose bound is not below elapsed.
func (a *attempts) bucket(elapsed time.Duration) int {
	low, high := 0, len(a.nanoseconds)
	for low < high {
		if mid := int(uint(low+high) >> 1); a.nanoseconds[mid] < int64(elapsed) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (a *attempts) observe(at *middleware.Attempt) {
	s, bucket := a.seriesOf(place{at.Topic, at.Handler}), a.bucket(at.Elapsed)
	if at.Err == nil {
		s.succeeded.add(bucket, at.Elapsed)
		return
	}
	s.failed.add(bucket, at.Elapsed)
	s.outcomes[at.Verdict.Class].Add(1)
}

// seriesOf returns the series of a place. It has a bound as the labels do: places beyond it share those of their folded
// names.
func (a *attempts) seriesOf(p place) *series {
	recent := &a.recent[(len(p.topic)^len(p.handler)<<1)&(recentPlaces-1)]
	if v := recent.Load(); v != nil && v.place == p {
		return v.series
	}
	if s := (*a.known.Load())[p]; s != nil {
		return s
	}
	return a.add(p, recent)
}

func (a *attempts) add(p place, recent *atomic.Pointer[visited]) *series {
	folded := place{a.labels.value("topic", p.topic), a.labels.value("handler", p.handler)}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := *a.known.Load()
	if s := now[p]; s != nil {
		return s
	}
	if now[folded] == nil && len(a.all) >= a.most { // few values can have many pairs
		a.labels.folded.WithLabelValues("place").Inc()
		folded = place{few.Other, few.Other}
	}
	s := now[folded]
	if s == nil {
		s = &series{of: folded}
		s.succeeded.buckets, s.failed.buckets = make([]atomic.Uint64, len(a.bounds)+1), make([]atomic.Uint64,
			len(a.bounds)+1)
		a.all = append(a.all, s)
	} else if len(now) > 2*a.most { // what is beyond the bound is not worth memory
		return s
	}
	next := maps.Clone(now)
	next[folded] = s
	p = place{strings.Clone(p.topic), strings.Clone(p.handler)}
	next[p] = s
	a.known.Store(&next)
	recent.CompareAndSwap(nil, &visited{p, s}) // the first one stays: places that take turns write nothing
	return s
}

func (a *attempts) Describe(ch chan<- *prometheus.Desc) {
	ch <- a.total
	ch <- a.times
}

func (a *attempts) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	all := slices.Clone(a.all)
	a.mu.Unlock()
	for _, s := range all {
		topic, handler := s.of.topic, s.of.handler
		counter := func(n uint64, outcome string) {
			ch <- prometheus.MustNewConstMetric(a.total, prometheus.CounterValue, float64(n), topic, handler, outcome)
		}
		for class := range s.outcomes {
			counter(s.outcomes[class].Load(), classify.Class(class).String())
		}
		buckets := make(map[float64]uint64, len(a.bounds))
		var succeeded, count uint64
		sum := time.Duration(s.succeeded.sum.Load() + s.failed.sum.Load())
		for i := range s.succeeded.buckets {
			n := s.succeeded.buckets[i].Load()
			succeeded += n
			if count += n + s.failed.buckets[i].Load(); i < len(a.bounds) {
				buckets[a.bounds[i]] = count
			}
		}
		counter(succeeded, "success")
		ch <- prometheus.MustNewConstHistogram(a.times, count, sum.Seconds(), buckets, topic, handler)
	}
}
