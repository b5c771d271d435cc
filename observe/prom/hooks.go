package prom

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/internal/few"
	"github.com/watermill-spillway/spillway/observe/internal/first"
	"github.com/watermill-spillway/spillway/poison"
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
	retry.OnAttempt = first.Ours(m.attempt, retry.OnAttempt)
	retry.OnRetry = first.Ours2(m.retry, retry.OnRetry)
	retry.OnBudgetSpent = first.Ours(m.budgetSpent, retry.OnBudgetSpent)
	if config.Stages != nil {
		s := &config.Stages.Hooks
		s.OnStage = first.Ours(m.stage, s.OnStage)
		s.OnReentry = first.Ours(m.reentry, s.OnReentry)
	}

	queue := &config.Queue.Hooks
	queue.OnDeadLetter = first.Ours(m.deadLetter, queue.OnDeadLetter)
	queue.OnDiscard = first.Ours(m.discard, queue.OnDiscard)
	queue.OnPublishError = first.Ours2(m.refusal(m.refused), queue.OnPublishError)
	queue.OnUnplaced = first.Ours2(m.refusal(m.unplaced), queue.OnUnplaced)
	config.Outputs.OnOutputError = first.Ours(m.outputError, config.Outputs.OnOutputError)
	if config.CrashLimit != nil {
		limit := &config.CrashLimit.Hooks
		limit.OnExceeded = first.Ours(m.crashLimit, limit.OnExceeded)
		limit.OnUnfinished = first.Ours(m.crashed, limit.OnUnfinished)
	}
	if config.Receiver != nil {
		m.receiver(&config.Receiver.Hooks)
	}
	if purge := config.Purge; purge != nil {
		purge.OnRun = first.Ours2(func(ctx context.Context, n int, err error) {
			m.purged.WithLabelValues(ofKeys).Add(float64(n))
			if ctx.Err() == nil {
				m.ran(ofKeys, err)
			}
		}, purge.OnRun)
		m.expect(ofKeys, purge.Every)
	}
	if retention := config.Retention; retention != nil {
		retention.OnRun = first.Ours2(func(_ context.Context, n int, err error) {
			m.purged.WithLabelValues(ofLetters).Add(float64(n))
			m.ran(ofLetters, err)
		}, retention.OnRun)
		m.expect(ofLetters, time.Hour)
	}
	if store, ok := decorated.As[*letters.Store](config.Publisher); ok {
		m.store.Store(store)
	}
	if config.Breaker != nil {
		hooks := &config.Breaker.Hooks
		theirs := hooks.OnChange
		hooks.OnChange = func(c breaker.Change) {
			m.breaker.WithLabelValues(m.labels.value("handler", c.Handler), string(c.To)).Inc()
			if theirs != nil {
				theirs(c)
			}
		}
		hooks.OnWaited = first.Ours2(m.wait, hooks.OnWaited)
	}
}

func (m *Metrics) receiver(receiver *idempotency.Hooks) {
	receiver.OnApplied = first.Ours(m.consumer(m.applied), receiver.OnApplied)
	receiver.OnDuplicate = first.Ours(m.consumer(m.duplicates), receiver.OnDuplicate)
	receiver.OnRequeue = first.Ours(m.consumer(m.putBack), receiver.OnRequeue)
	receiver.OnLeaseLost = first.Ours(m.consumer(m.leasesLost), receiver.OnLeaseLost)
	stale, theirs := m.consumer(m.stale), receiver.OnStale
	receiver.OnStale = func(ctx context.Context, key idempotency.Key, version, applied int64) {
		stale(ctx, key)
		if theirs != nil {
			theirs(ctx, key, version, applied)
		}
	}
}

// Redrives returns hooks for redrive.NewHandler, Drain and DrainTopic that count, and then call hooks.
func (m *Metrics) Redrives(hooks redrive.Hooks) redrive.Hooks {
	count := func(vec *prometheus.CounterVec, topic string) {
		vec.WithLabelValues(m.labels.value("topic", topic)).Inc()
	}
	hooks.OnRedrive = first.Ours2(func(_ context.Context, _ poison.Letter, topic string) {
		count(m.redriven, topic)
	}, hooks.OnRedrive)
	hooks.OnRefused = first.Ours2(func(_ context.Context, l poison.Letter, _ string) {
		count(m.redrivesRefused, l.Origin.Topic)
	}, hooks.OnRefused)
	hooks.OnQuarantine = first.Ours(func(_ context.Context, l poison.Letter) {
		count(m.quarantined, l.Origin.Topic)
	}, hooks.OnQuarantine)
	hooks.OnParked = first.Ours2(func(_ context.Context, l poison.Letter, _ error) {
		count(m.parked, l.DeadLetterTopic)
	}, hooks.OnParked)
	hooks.OnPublishError = first.Ours2(func(_ context.Context, l poison.Letter, _ error) {
		count(m.publishErrors, l.Origin.Topic)
	}, hooks.OnPublishError)
	return hooks
}

func (m *Metrics) attempt(_ context.Context, a middleware.Attempt) { m.attempts.observe(&a) }

func (m *Metrics) retry(_ context.Context, a middleware.Attempt, _ time.Duration) {
	m.retries.WithLabelValues(m.labels.value("topic", a.Topic), m.labels.value("handler", a.Handler), "process",
		"").Inc()
}

func (m *Metrics) budgetSpent(ctx context.Context, b middleware.BudgetSpent) {
	to := "wait"
	if b.ToStage {
		to = "stage"
	}
	m.budget.WithLabelValues(m.labels.value("handler", message.HandlerNameFromCtx(ctx)), b.Traffic, to).Inc()
}

func (m *Metrics) stage(_ context.Context, w stages.Waiting) {
	m.retries.WithLabelValues(m.labels.value("topic", w.Topic), m.labels.value("handler", w.Handler), "stage",
		strconv.Itoa(w.Stage)).Inc()
}

// maxLate bounds what a due time can add to a sum: it comes with a message.
const maxLate = 24 * time.Hour

func (m *Metrics) reentry(_ context.Context, r stages.Reentry) {
	topic, handler, stage := m.labels.value("topic", r.Topic), m.labels.value("handler",
		r.Handler), strconv.Itoa(r.Stage)
	m.reentries.WithLabelValues(topic, handler, stage).Inc()
	if r.Stage > 0 {
		m.lateness.WithLabelValues(topic, handler, stage).Observe(min(r.Late, maxLate).Seconds())
	}
}

func (m *Metrics) deadLetter(_ context.Context, l poison.Letter) {
	labels := []string{m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler),
		l.Failure.Class.String(), m.labels.value("reason", l.Failure.Reason)}
	m.deadLetters.WithLabelValues(labels...).Inc()
	if l.Redrive.Count > 0 {
		m.failedAgain.WithLabelValues(labels...).Inc()
	}
}

func (m *Metrics) discard(_ context.Context, l poison.Letter) {
	m.discarded.WithLabelValues(m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler),
		m.labels.value("reason", l.Failure.Reason)).Inc()
}

func (m *Metrics) refusal(vec *prometheus.CounterVec) func(context.Context, poison.Letter, error) {
	return func(_ context.Context, l poison.Letter, _ error) {
		vec.WithLabelValues(m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler)).Inc()
	}
}

func (m *Metrics) outputError(ctx context.Context, _ error) {
	m.outputs.WithLabelValues(m.labels.value("topic", message.SubscribeTopicFromCtx(ctx)),
		m.labels.value("handler", message.HandlerNameFromCtx(ctx))).Inc()
}

func (m *Metrics) crashLimit(_ context.Context, e crashlimit.Unfinished) {
	m.exceeded.WithLabelValues(m.labels.value("handler", e.Consumer)).Inc()
}

func (m *Metrics) crashed(_ context.Context, u crashlimit.Unfinished) {
	m.unfinished.WithLabelValues(m.labels.value("handler", u.Consumer)).Inc()
}

func (m *Metrics) wait(ctx context.Context, waited time.Duration, _ bool) {
	m.waited.WithLabelValues(m.labels.value("handler", message.HandlerNameFromCtx(ctx))).Observe(waited.Seconds())
}

func (m *Metrics) consumer(vec *prometheus.CounterVec) func(context.Context, idempotency.Key) {
	return func(_ context.Context, k idempotency.Key) {
		vec.WithLabelValues(m.labels.value("consumer", k.Consumer)).Inc()
	}
}

// The values of the label purge.
const ofKeys, ofLetters = "keys", "letters"

// expect says that a purge is set up. Its first run is due.
func (m *Metrics) expect(purge string, every time.Duration) {
	if every == 0 {
		every = time.Hour // the default of both
	}
	m.purged.WithLabelValues(purge)
	m.purgeFailures.WithLabelValues(purge)
	m.purgeEvery.WithLabelValues(purge).Set(every.Seconds())
	m.purgedAt.WithLabelValues(purge).SetToCurrentTime()
}

func (m *Metrics) ran(purge string, err error) {
	if err != nil {
		m.purgeFailures.WithLabelValues(purge).Inc()
		return
	}
	m.purgedAt.WithLabelValues(purge).SetToCurrentTime()
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
		at := place{few.Other, few.Other}
		if handler, topic, ok := s.of.Inside().HandlerOf(w.Topic); ok {
			at = place{s.labels.value("topic", topic), s.labels.value("handler", handler)}
		}
		sums[at] = sum{sums[at].waiting + float64(w.Messages), max(sums[at].overdue, -w.Next.Seconds())}
	}
	for at, n := range sums {
		gauge(ch, s.waiting, n.waiting, at.topic, at.handler)
		gauge(ch, s.overdue, n.overdue, at.topic, at.handler)
	}
}
