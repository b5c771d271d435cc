package prom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const namespace = "spillway"

// Metrics are the metrics of one or several channels. They are safe for concurrent use.
type Metrics struct {
	config   Config
	labels   *bounded
	observed atomic.Bool // by a Channel at least
	watched  atomic.Bool
	store    atomic.Pointer[letters.Store] // that Observe found in a Config.Publisher, or nil

	retries, reentries, budget             *prometheus.CounterVec
	deadLetters, failedAgain, discarded    *prometheus.CounterVec
	refused, unplaced, outputs             *prometheus.CounterVec
	exceeded, unfinished, breaker          *prometheus.CounterVec
	applied, duplicates, stale, putBack    *prometheus.CounterVec
	leasesLost, redriven, quarantined      *prometheus.CounterVec
	redrivesRefused, parked, publishErrors *prometheus.CounterVec
	purged, purgeFailures                  *prometheus.CounterVec
	purgedAt, purgeEvery                   *prometheus.GaugeVec
	lateness, waited                       *prometheus.HistogramVec

	attempts *attempts
}

// New registers the metrics. It returns an error that names the field of config that is wrong, or the registry's error
// if it has metrics of these names and labels already.
func New(config Config) (*Metrics, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Metrics{config: config, labels: newBounded(config.MaxValues)}
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
// in the order of their key; and the campaigns of its service, if they are given. It makes the table of shared answers
// in their databases if it is missing, within ctx. It is called once, with one channel. A channel that was made without
// the Metrics in Config.Observers counts nothing.
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
		source, err := newSource(ctx, store.Inside().DB(), store.Inside().Service(), "letters/1", &m.config,
			func(ctx context.Context) (lettersAnswer, error) {
				return askLetters(ctx, store)
			})
		if err != nil {
			return nil, err
		}
		all = append(all, newBacklog(source, m.labels))
	}
	if waiting := channel.Stages().Inside().Store(); waiting != nil {
		source, err := newSource(ctx, waiting.DB(), waiting.Service(), "stages/1", &m.config, waiting.Waiting)
		if err != nil {
			return nil, err
		}
		all = append(all, newStaged(source, channel.Stages(), m.labels))
	}
	sequences, err := m.scrapedSequences(ctx, channel)
	if err != nil {
		return nil, err
	}
	all = append(all, sequences...)
	for _, c := range of {
		redriving, err := m.scrapedCampaigns(ctx, c)
		if err != nil {
			return nil, err
		}
		all = append(all, redriving)
	}
	return all, nil
}
