package prom

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// source is something in a database that is asked for at a scrape, at most once within Config.Interval. Between two
// answers a scrape asks the database nothing.
type source[T any] struct {
	ask     func(context.Context) (T, error)
	every   time.Duration
	timeout time.Duration

	mu     sync.Mutex
	last   T
	at     time.Time // of last; zero if there is none
	ok     bool      // the database answered when it was asked last
	next   time.Time
	asking chan struct{} // closed when the answer that is under way is there; nil if none is
	until  time.Time     // when scrapes wait for it no longer
}

// scraped are the series of a source.
type scraped[T any] struct {
	source[T]
	up, answered *prometheus.Desc
	others       []*prometheus.Desc
	emit         func(ch chan<- prometheus.Metric, now T)
}

// newScraped asks for what emit makes the series of.
func newScraped[T any](m *Metrics, name string, ask func(context.Context) (T, error),
	emit func(chan<- prometheus.Metric, T), others ...*prometheus.Desc) prometheus.Collector {
	labels := prometheus.Labels{"source": name}
	return &scraped[T]{source: source[T]{ask: ask, every: m.config.Interval, timeout: m.timeout},
		up: prometheus.NewDesc(namespace+"_source_up", "1 if the database answered when it was asked last.", nil, labels),
		answered: prometheus.NewDesc(namespace+"_source_answered_timestamp_seconds",
			"When the database answered last, as Unix time; 0 is never.", nil, labels),
		others: others, emit: emit}
}

func (s *scraped[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{s.up, s.answered}, s.others...) {
		ch <- d
	}
}

// Collect shows up and answered at each scrape, and the others while the answer is not stale.
func (s *scraped[T]) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := s.read()
	gauge(ch, s.up, flag(ok))
	gauge(ch, s.answered, unix(at))
	if !at.IsZero() && (ok || time.Since(at) <= stale) {
		s.emit(ch, now)
	}
}

// read returns the last answer, when it was given, and whether the database answers. Scrapes at the same time wait for
// one answer. A database that hangs holds a scrape for the timeout, and those that follow not at all.
func (s *source[T]) read() (last T, at time.Time, ok bool) {
	s.mu.Lock()
	if now := time.Now(); s.asking == nil && !now.Before(s.next) {
		s.asking, s.until = make(chan struct{}), now.Add(s.timeout)
		go s.refresh(s.asking)
	}
	asking, rest := s.asking, time.Until(s.until)
	s.mu.Unlock()
	if asking != nil {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-asking:
		case <-timer.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.asking != nil && !time.Now().Before(s.until)
	return s.last, s.at, s.ok && !late
}

// refresh asks once. It is the only one at work, and ends with the database's answer.
func (s *source[T]) refresh(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	began := time.Now()
	var now T
	err := safecall.Call("prom: ask the database", func() (err error) { now, err = s.ask(ctx); return err })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ok = err == nil; s.ok {
		s.last, s.at = now, began
	}
	s.next = time.Now().Add(s.every + rand.N(s.every/10+1)) // instances do not ask all at once
	s.asking = nil
	close(done)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// health reads the states of breakers and stores at a scrape. It asks no database.
type health struct {
	channel                                            *spillway.Channel
	labels                                             *bounded
	ok, open, since, waiting, storeUnavailable, budget *prometheus.Desc
}

func newHealth(channel *spillway.Channel, labels *bounded) *health {
	return &health{channel: channel, labels: labels,
		ok: newDesc("ok", "1 if no handler's messages are held, and no message found a store of the channel away."),
		open: newDesc("outage_open", "1 while the breaker holds a handler's messages, by its state. A freeze of all "+
			"handlers has an empty handler.", "handler", "state"),
		since: newDesc("outage_since_timestamp_seconds", "Since when the breaker was not closed, as Unix time.",
			"handler"),
		waiting:          newDesc("outage_waiting", "Messages that the breaker holds.", "handler"),
		storeUnavailable: newDesc("store_unavailable", "1 while a store or publisher of the channel itself is unavailable.", "store"),
		budget: newDesc("retry_budget_spent", "1 while a retry budget has no further attempt. A budget that handlers "+
			"share has an empty handler.", "handler", "traffic"),
	}
}

func (h *health) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.ok, h.open, h.since, h.waiting, h.storeUnavailable, h.budget} {
		ch <- d
	}
}

// Collect sums the scopes of a handler up: a scope can be a tenant, and so no label.
func (h *health) Collect(ch chan<- prometheus.Metric) {
	now := h.channel.Health()
	gauge(ch, h.ok, flag(now.OK))
	type held struct {
		since   float64
		waiting int
		states  map[circuit.State]bool
	}
	handlers := map[string]*held{}
	for _, s := range now.Handlers {
		if s.State == circuit.Closed {
			continue
		}
		name := h.labels.value("handler", s.Handler)
		one := handlers[name]
		since := float64(s.Since.UnixMilli()) / 1000
		if one == nil {
			one = &held{since: since, states: map[circuit.State]bool{}}
			handlers[name] = one
		}
		one.since = min(one.since, since)
		one.waiting += s.Waiting
		one.states[s.State] = true
	}
	for name, one := range handlers {
		for state := range one.states {
			gauge(ch, h.open, 1, name, string(state))
		}
		gauge(ch, h.since, one.since, name)
		gauge(ch, h.waiting, float64(one.waiting), name)
	}
	unavailable := map[string]bool{}
	for _, store := range now.Stores {
		if name := h.labels.value("store", store.Name); !unavailable[name] {
			unavailable[name] = true
			gauge(ch, h.storeUnavailable, 1, name)
		}
	}
	spent := map[[2]string]bool{}
	for _, b := range now.Budgets {
		if of := [2]string{h.labels.value("handler", b.Handler), b.Traffic}; !spent[of] {
			spent[of] = true
			gauge(ch, h.budget, 1, of[:]...)
		}
	}
}
