package prom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const namespace = "spillway"

// Metrics are the metrics of one or several channels. They are safe for concurrent use.
type Metrics struct {
	config   Config
	timeout  time.Duration
	labels   *bounded
	observed atomic.Bool // by a Channel at least
	watched  atomic.Bool
	store    atomic.Pointer[letters.Store] // that Observe found in a Config.Publisher, or nil

	counters             map[*series.Series]*prometheus.CounterVec
	histograms           map[*series.Series]*prometheus.HistogramVec
	purgedAt, purgeEvery *prometheus.GaugeVec

	attempts *attempts
}

// New registers the metrics. It returns an error that names the field of config that is wrong, or the registry's error
// if it has metrics of these names and labels already.
func New(config Config) (*Metrics, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Metrics{config: config, timeout: timeout, labels: newBounded(config.MaxValues)}
	if err := register(config.Registerer, m.collectors()); err != nil {
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
			if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
				return errors.New("prom: Config.Registerer has the metrics of another Metrics: use one Metrics, or a Registerer " +
					"with another label for each, such as prometheus.WrapRegistererWith(prometheus.Labels{\"channel\": \"orders\"}, " +
					"registerer)")
			}
			return fmt.Errorf("prom: Config.Registerer refuses the metrics; if several Metrics share a registry, each needs a "+
				"Registerer with the same label names, such as prometheus.WrapRegistererWith(prometheus.Labels{\"channel\": "+
				"\"orders\"}, registerer): %w", err)
		}
	}
	return nil
}

var errNoContext = errors.New("prom: the context is nil: give context.Background() if there is no other")

// Watch adds what is read at a scrape: the states of the channel's breakers and retry budgets, its stores that are
// away, the letters that wait in its dead-letter store, the messages that wait in its delay store, and those that wait
// in the order of their key; and the campaigns of its service, if they are given. It is called once, with one channel,
// and asks a database within ctx. A channel that was made without the Metrics in Config.Observers counts nothing.
func (m *Metrics) Watch(ctx context.Context, channel *spillway.Channel, all ...*campaigns.Campaigns) error {
	switch {
	case ctx == nil:
		return errNoContext
	case safecall.IsNil(channel):
		return errors.New("prom: Watch: the Channel is nil: check the error of spillway.New")
	case slices.Contains(all, nil):
		return errors.New("prom: Watch: the Campaigns are nil: check the error of campaigns.New, or leave them out")
	case len(all) > 1:
		return errors.New("prom: Watch takes the Campaigns of one service")
	}
	if !m.observed.Load() {
		return errors.New("prom: Watch: no Channel counts yet: name the Metrics in Config.Observers, and then call " +
			"spillway.New and Watch")
	}
	if !m.watched.CompareAndSwap(false, true) {
		return errors.New("prom: Watch was called before: it takes one channel, and another channel needs a Metrics of its own, " +
			"with a Registerer of prometheus.WrapRegistererWith")
	}
	scraped, err := m.scraped(ctx, channel, all)
	if err == nil {
		err = register(m.config.Registerer, scraped)
	}
	if err != nil {
		m.watched.Store(false)
	}
	return err
}

func (m *Metrics) scraped(ctx context.Context, channel *spillway.Channel,
	of []*campaigns.Campaigns) ([]prometheus.Collector, error) {
	all := []prometheus.Collector{newHealth(channel, m.labels)}
	store := channel.Letters()
	if store == nil {
		store = m.store.Load()
	}
	if store != nil {
		all = append(all, m.lettersSource(store))
	}
	if hidden.Of(channel.Stages()).Store() != nil {
		all = append(all, m.stagesSource(channel.Stages()))
	}
	table, err := parked.TableOf(ctx, channel)
	if table != nil {
		all = append(all, m.sequencesSource(table))
	}
	for _, c := range of {
		all = append(all, m.campaignsSource(c))
	}
	return all, err
}

// collectors makes the metrics of what hooks tell.
func (m *Metrics) collectors() []prometheus.Collector {
	m.attempts = newAttempts(m.labels, m.config.MaxValues, seconds)
	m.counters = map[*series.Series]*prometheus.CounterVec{}
	m.histograms = map[*series.Series]*prometheus.HistogramVec{}
	m.purgedAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace,
		Name: "purge_last_run_timestamp_seconds",
		Help: "When a purge of this process succeeded last, or was set up, as Unix time."}, []string{"purge"})
	m.purgeEvery = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "purge_interval_seconds",
		Help: "The time from the end of one purge to the next."}, []string{"purge"})
	all := []prometheus.Collector{m.labels.folded, m.attempts.total, m.attempts.times, m.purgedAt, m.purgeEvery}
	for _, s := range series.All {
		if s.Bounds == nil {
			m.counters[s] = prometheus.NewCounterVec(
				prometheus.CounterOpts{Namespace: namespace, Name: s.Name, Help: s.Help}, s.Labels)
			all = append(all, m.counters[s])
			continue
		}
		m.histograms[s] = prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Namespace: namespace, Name: s.Name, Buckets: s.Bounds, Help: s.Help}, s.Labels)
		all = append(all, m.histograms[s])
	}
	return all
}

// maxValue is the longest value, in characters.
const maxValue = 100

// bounded keeps the values of each label few, and counts what it folds.
type bounded struct {
	values *series.Few
	folded *prometheus.CounterVec
}

func newBounded(most int) *bounded {
	folded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "label_values_folded_total",
		Help: "How often a value beyond the bound of its label was counted as the value other.",
	}, []string{"label"})
	return &bounded{folded: folded, values: series.NewFew(most, maxValue, func(label string) {
		folded.WithLabelValues(label).Inc()
	})}
}

// value returns value as it may stand in a series.
func (b *bounded) value(label, value string) string { return b.values.Of(label, value) }

// clean makes a value that Prometheus accepts, and people can read in a line.
func clean(value string) string { return series.Text(value, maxValue) }

// Config configures Metrics. Registerer is required.
type Config struct {
	// Registerer takes the metrics. Use prometheus.WrapRegistererWith for labels of your own, such as the service if
	// several channels share a registry: two Metrics with equal labels cannot be in one registry.
	Registerer prometheus.Registerer
	// MaxValues is the largest number of values of each label; all others are "other". Default: 200. At most 10,000.
	MaxValues int
	// Interval is the least time between two queries of the dead-letter store, and of each other source, by one
	// instance. Raise it for many instances. Default: 30 s.
	Interval time.Duration
}

func (c *Config) setDefaults() {
	if c.MaxValues == 0 {
		c.MaxValues = 200
	}
	if c.Interval == 0 {
		c.Interval = 30 * time.Second
	}
}

func (c *Config) validate() error {
	if safecall.IsNil(c.Registerer) {
		return errors.New("prom: Config.Registerer is nil: give a registry, such as prometheus.DefaultRegisterer")
	}
	if c.MaxValues < 1 || c.MaxValues > 10_000 {
		return fmt.Errorf("prom: Config.MaxValues is %d: it must be 1 to 10,000", c.MaxValues)
	}
	if c.Interval < 0 {
		return fmt.Errorf("prom: Config.Interval is %s: it must not be negative", c.Interval)
	}
	return nil
}

// maxCauses is how many causes have series of their own, those with the most letters: more do not fit a page. The
// letters of the others are the cause "other".
const maxCauses = 20

// timeout bounds how long a scrape waits for a database. It is below the scrape timeout of Prometheus, which is 10 s by
// default.
const timeout = 5 * time.Second

// stale is how long the series of a source keep their last values while the database does not answer: for longer than
// it takes to begin again, and shorter than a person takes to look.
const stale = 5 * time.Minute

// seconds are the upper bounds of the histogram of attempts: from a lookup in memory to the timeouts of most servers.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
