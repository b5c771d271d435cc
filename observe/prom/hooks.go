package prom

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/hidden"
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

// attempts counts the calls of handlers. A success is the only event of the happy path: it looks up no label.
type attempts struct {
	labels *bounded
	most   int // places
	total  *prometheus.CounterVec
	times  *prometheus.HistogramVec
	places series.Places[placeSeries]
}

// placeSeries are those of the attempts in one place.
type placeSeries struct {
	succeeded prometheus.Counter
	outcomes  [classify.ClassAborted + 1]prometheus.Counter
	times     prometheus.Observer
}

func newAttempts(labels *bounded, most int, bounds []float64) *attempts {
	return &attempts{labels: labels, most: most,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "attempts_total",
			Help: "Calls of handlers, by their outcome: success, or the class of the error."},
			[]string{"topic", "handler", "outcome"}),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "attempt_duration_seconds",
			Help: "How long a call of a handler took.", Buckets: bounds}, []string{"topic", "handler"}),
	}
}

func (a *attempts) observe(at *middleware.Attempt) {
	s := a.seriesOf(series.Place{Topic: at.Topic, Handler: at.Handler})
	s.times.Observe(at.Elapsed.Seconds())
	if at.Err == nil {
		s.succeeded.Inc()
		return
	}
	s.outcomes[at.Verdict.Class].Inc()
}

// seriesOf returns the series of a place.
func (a *attempts) seriesOf(p series.Place) *placeSeries {
	if s := a.places.Of(p); s != nil {
		return s
	}
	of := series.Place{Topic: a.labels.value("topic", p.Topic), Handler: a.labels.value("handler", p.Handler)}
	s := &placeSeries{succeeded: a.total.WithLabelValues(of.Topic, of.Handler, "success"),
		times: a.times.WithLabelValues(of.Topic, of.Handler)}
	for class := range s.outcomes {
		s.outcomes[class] = a.total.WithLabelValues(of.Topic, of.Handler, classify.Class(class).String())
	}
	a.places.Keep(p, s, 2*a.most)
	return s
}

// stagesSource are the messages that wait in the delay store. Instances of a service can have different handlers: the
// names are this instance's own.
func (m *Metrics) stagesSource(of *stages.Stages) prometheus.Collector {
	store := hidden.Of(of).Store()
	waiting := newDesc("stage_waiting", "Messages that wait in the delay store, in all stages of a handler. Those of "+
		"handlers that this process does not have are other.", "topic", "handler")
	overdue := newDesc("stage_overdue_seconds", "How long the first message in the delay store is overdue; 0 if none is.",
		"topic", "handler")
	return newScraped(m, "stages", store.Waiting,
		func(ch chan<- prometheus.Metric, now []delays.Waiting) {
			type sum struct{ waiting, overdue float64 }
			sums := make(map[series.Place]sum)
			for _, w := range now {
				at := series.Place{Topic: series.Other, Handler: series.Other}
				if handler, topic, ok := hidden.Of(of).HandlerOf(w.Topic); ok {
					at = series.Place{Topic: m.labels.value("topic", topic), Handler: m.labels.value("handler", handler)}
				}
				sums[at] = sum{sums[at].waiting + float64(w.Messages), max(sums[at].overdue, -w.Next.Seconds())}
			}
			for at, n := range sums {
				gauge(ch, waiting, n.waiting, at.Topic, at.Handler)
				gauge(ch, overdue, n.overdue, at.Topic, at.Handler)
			}
		}, waiting, overdue)
}
