package prom

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

const namespace = "spillway"

// Metrics are the metrics of one or several channels. They are safe for concurrent use.
type Metrics struct {
	config  Config
	labels  *bounded
	watched atomic.Bool

	attempts, retries, reentries, budget   *prometheus.CounterVec
	deadLetters, discarded, refused        *prometheus.CounterVec
	unplaced, outputs, exceeded, guard     *prometheus.CounterVec
	applied, duplicates, stale, putBack    *prometheus.CounterVec
	leasesLost, redriven, quarantined      *prometheus.CounterVec
	redrivesRefused, parked, publishErrors *prometheus.CounterVec
	purged                                 prometheus.Counter
	purgedAt                               prometheus.Gauge
	elapsed, lateness                      *prometheus.HistogramVec

	series atomic.Pointer[map[place]*series] // of attempts; copied on write
	adding sync.Mutex
}

// New registers the metrics. It returns an error that names the field of config that is wrong, or the registry's error if it has metrics
// of these names and labels already.
func New(config Config) (*Metrics, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Metrics{config: config, labels: newBounded(config.MaxValues)}
	m.series.Store(&map[place]*series{})
	all := []prometheus.Collector{m.labels.folded}
	counter := func(into **prometheus.CounterVec, name, help string, labels ...string) {
		*into = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		all = append(all, *into)
	}
	counter(&m.attempts, "attempts_total", "Calls of handlers, by their outcome: success, or the class of the error.", "topic", "handler", "outcome")
	counter(&m.retries, "retries_total", "Messages that are to be handled again: in place, or in a stage, whose number is the stage.", "topic", "handler", "place", "stage")
	counter(&m.reentries, "reentries_total", "Messages that came out of a stage, whose number is the stage; 0 are redriven ones.", "topic", "handler", "stage")
	counter(&m.budget, "retry_budget_spent_total", "Messages for which the retry budget had no further attempt.", "traffic", "to")
	counter(&m.deadLetters, "dead_letters_total", "Messages set aside, confirmed by the publisher of dead letters.", "topic", "handler", "class", "reason")
	counter(&m.discarded, "discarded_total", "Messages dropped because their error says so.", "topic", "handler", "reason")
	counter(&m.refused, "placements_refused_total", "Refusals of a dead letter by a publisher.", "topic", "handler")
	counter(&m.unplaced, "unplaced_total", "Dead letters that all publishers refused; their messages were given back.", "topic", "handler")
	counter(&m.outputs, "output_errors_total", "Refusals of a handler's output by its publisher.", "topic", "handler")
	counter(&m.exceeded, "crash_limit_exceeded_total", "Messages that ended the process too often.", "consumer")
	counter(&m.guard, "outage_changes_total", "Changes of an outage guard, by the new state.", "handler", "state")
	counter(&m.applied, "messages_applied_total", "Messages that the idempotent receiver applied.", "consumer")
	counter(&m.duplicates, "duplicates_total", "Messages that the receiver absorbed because they were applied before.", "consumer")
	counter(&m.stale, "stale_total", "Messages that the receiver skipped because a later version was applied.", "consumer")
	counter(&m.putBack, "put_back_total", "Messages that the receiver gave back because another consumer has their key.", "consumer")
	counter(&m.leasesLost, "leases_lost_total", "Leases of the receiver that ended under a running handler.", "consumer")
	counter(&m.redriven, "redriven_total", "Letters that came back, by the topic that they were published to.", "topic")
	counter(&m.quarantined, "quarantined_total", "Letters that failed again after the most redrives.", "topic")
	counter(&m.redrivesRefused, "redrives_refused_total", "Letters whose topic is not allowed.", "topic")
	counter(&m.parked, "parked_total", "Messages of dead-letter topics that were parked.", "topic")
	counter(&m.publishErrors, "redrive_errors_total", "Refusals of a letter on its way back by the publisher.", "topic")
	m.purged = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "keys_purged_total", Help: "Keys of the receiver that were purged."})
	m.purgedAt = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "purge_timestamp_seconds", Help: "When this process purged a key last, as Unix time; 0 is never."})
	m.elapsed = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "attempt_duration_seconds", Buckets: config.Buckets,
		Help: "How long a call of a handler took."}, []string{"topic", "handler"})
	m.lateness = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "stage_lateness_seconds",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		Help:    "How late a message came out of its stage."}, []string{"topic", "handler", "stage"})
	if err := register(config.Registerer, append(all, m.purged, m.purgedAt, m.elapsed, m.lateness)); err != nil {
		return nil, err
	}
	return m, nil
}

// register registers all, or none.
func register(r prometheus.Registerer, all []prometheus.Collector) error {
	for i, c := range all {
		if err := r.Register(c); err != nil {
			for _, done := range all[:i] {
				r.Unregister(done)
			}
			var twice prometheus.AlreadyRegisteredError
			if errors.As(err, &twice) {
				return errors.New("prom: the registry has the metrics of another Metrics: use one for all channels, or prometheus.WrapRegistererWith")
			}
			return fmt.Errorf("prom: register: %w", err)
		}
	}
	return nil
}

// Watch adds what is read at a scrape: the states of the channel's guards, the stores that are away, and the letters that wait in the
// channel's store. It is called once, with one channel. It starts no goroutine.
func (m *Metrics) Watch(channel *spillway.Channel) error {
	if safecall.IsNil(channel) {
		return errors.New("prom: Watch: the Channel is nil: check the error of spillway.New")
	}
	if !m.watched.CompareAndSwap(false, true) {
		return errors.New("prom: Watch was called before: it takes one channel, and another channel needs a Metrics of its own")
	}
	all := []prometheus.Collector{newHealth(channel, m.labels)}
	if store := channel.Letters(); store != nil {
		all = append(all, newBacklog(store, m.config, m.labels))
	}
	return register(m.config.Registerer, all)
}
