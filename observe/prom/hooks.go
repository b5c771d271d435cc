package prom

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Observe is called by spillway.New, for Metrics in Config.Observers. It puts the hooks of the metrics before those of
// config. Parts that config leaves out stay out.
func (m *Metrics) Observe(config *spillway.Config) error {
	m.hooks(config)
	m.observed.Store(true)
	return nil
}

var _ spillway.Observer = (*Metrics)(nil)

// hooks puts the hooks of the metrics before those of config.
func (m *Metrics) hooks(config *spillway.Config) {
	retry := &config.Retry.Hooks
	retry.OnAttempt = series.Before(func(_ context.Context, a middleware.Attempt) { m.attempts.observe(&a) },
		retry.OnAttempt)
	series.Channel(config, m.to)
	if purge := config.Purge; purge != nil {
		purge.OnRun = series.Before2(m.ran(series.PurgeOfKeys, purge.Every), purge.OnRun)
	}
	if retention := config.Retention; retention != nil {
		retention.OnRun = series.Before2(m.ran(series.PurgeOfLetters, time.Hour), retention.OnRun)
	}
	if store, ok := decorated.As[*letters.Store](config.Publisher); ok {
		m.store.Store(store)
	}
}

// Redrives returns hooks for redrive.NewHandler, Drain and DrainTopic that count, and then call hooks.
func (m *Metrics) Redrives(hooks redrive.Hooks) redrive.Hooks { return series.Redrives(hooks, m.to) }

// to returns what adds to a series.
func (m *Metrics) to(s *series.Series) series.Add {
	counter, histogram := m.counters[s], m.histograms[s]
	return func(_ context.Context, by float64, values series.Values) {
		for i, label := range s.Labels {
			if series.IsOpen(label) {
				values[i] = m.labels.value(label, values[i])
			}
		}
		if histogram != nil {
			histogram.WithLabelValues(values[:len(s.Labels)]...).Observe(by)
			return
		}
		counter.WithLabelValues(values[:len(s.Labels)]...).Add(by)
	}
}

// ran returns a hook for the runs of a purge that is set up now. Its first run is due.
func (m *Metrics) ran(purge string, every time.Duration) func(context.Context, int, error) {
	m.counters[series.Purged].WithLabelValues(purge)
	m.counters[series.PurgeFailures].WithLabelValues(purge)
	m.purgeEvery.WithLabelValues(purge).Set(cmp.Or(every, time.Hour).Seconds()) // the default of both
	at := m.purgedAt.WithLabelValues(purge)
	at.SetToCurrentTime()
	return func(_ context.Context, _ int, err error) {
		if err == nil {
			at.SetToCurrentTime()
		}
	}
}

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

	known  atomic.Pointer[map[place]*placeSeries] // copied on write
	recent [recentPlaces]atomic.Pointer[visited]  // of known, by the lengths of their names
	mu     sync.Mutex
	all    []*placeSeries
}

// recentPlaces is a power of two.
const recentPlaces = 16

// visited is an entry of attempts.recent.
type visited struct {
	place
	series *placeSeries
}

// placeSeries are those of the attempts in one place.
type placeSeries struct {
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
	a.known.Store(&map[place]*placeSeries{})
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
func (a *attempts) seriesOf(p place) *placeSeries {
	recent := &a.recent[(len(p.topic)^len(p.handler)<<1)&(recentPlaces-1)]
	if v := recent.Load(); v != nil && v.place == p {
		return v.series
	}
	if s := (*a.known.Load())[p]; s != nil {
		return s
	}
	return a.add(p, recent)
}

func (a *attempts) add(p place, recent *atomic.Pointer[visited]) *placeSeries {
	folded := place{a.labels.value("topic", p.topic), a.labels.value("handler", p.handler)}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := *a.known.Load()
	if s := now[p]; s != nil {
		return s
	}
	if now[folded] == nil && len(a.all) >= a.most { // few values can have many pairs
		a.labels.folded.WithLabelValues("place").Inc()
		folded = place{series.Other, series.Other}
	}
	s := now[folded]
	if s == nil {
		s = &placeSeries{of: folded}
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

// staged is the collector of the messages that wait in the delay store.
type staged struct {
	source           *source[[]delayed.Waiting]
	of               *stages.Stages
	state            sourceState
	labels           *bounded
	waiting, overdue *prometheus.Desc
}

func newStaged(source *source[[]delayed.Waiting], of *stages.Stages, labels *bounded) *staged {
	return &staged{source: source, of: of, state: newSourceState("stages"), labels: labels,
		waiting: newDesc("stage_waiting", "Messages that wait in the delay store, in all stages of a handler. Those of "+
			"handlers that this process does not have are other.", "topic", "handler"),
		overdue: newDesc("stage_overdue_seconds",
			"How long the first message in the delay store is overdue; 0 if none is.",
			"topic", "handler"),
	}
}

func (s *staged) Describe(ch chan<- *prometheus.Desc) {
	s.state.describe(ch)
	ch <- s.waiting
	ch <- s.overdue
}

func (s *staged) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := s.source.read()
	s.state.collect(ch, at, ok)
	if !s.source.fresh(at, ok) {
		return
	}
	type sum struct{ waiting, overdue float64 }
	sums := make(map[place]sum)
	for _, w := range now {
		// instances of a service can have different handlers: the names are this instance's own
		at := place{series.Other, series.Other}
		if handler, topic, ok := hidden.Of(s.of).HandlerOf(w.Topic); ok {
			at = place{s.labels.value("topic", topic), s.labels.value("handler", handler)}
		}
		sums[at] = sum{sums[at].waiting + float64(w.Messages), max(sums[at].overdue, -w.Next.Seconds())}
	}
	for at, n := range sums {
		gauge(ch, s.waiting, n.waiting, at.topic, at.handler)
		gauge(ch, s.overdue, n.overdue, at.topic, at.handler)
	}
}
