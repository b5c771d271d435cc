package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/outageguard"
)

// health reads the states of guards and stores at a scrape. It asks no database.
type health struct {
	channel                             *spillway.Channel
	labels                              *bounded
	ok, open, since, waiting, storeAway *prometheus.Desc
}

func newHealth(channel *spillway.Channel, labels *bounded) *health {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &health{channel: channel, labels: labels,
		ok:        desc("ok", "1 if no handler's messages are held, and no store of the channel is away."),
		open:      desc("outage_open", "1 while the guard holds a handler's messages, by its state. A freeze of all handlers has an empty handler.", "handler", "state"),
		since:     desc("outage_since_timestamp_seconds", "Since when the guard was not closed, as Unix time.", "handler"),
		waiting:   desc("outage_waiting", "Messages that the guard holds.", "handler"),
		storeAway: desc("store_away", "1 while a store or publisher of the channel itself is away.", "store"),
	}
}

func (h *health) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.ok, h.open, h.since, h.waiting, h.storeAway} {
		ch <- d
	}
}

// Collect sums the scopes of a handler up: a scope can be a tenant, and so no label.
func (h *health) Collect(ch chan<- prometheus.Metric) {
	now := h.channel.Health()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ok := 0.
	if now.OK {
		ok = 1
	}
	gauge(h.ok, ok)
	type held struct {
		since   float64
		waiting int
		states  map[outageguard.State]bool
	}
	handlers := map[string]*held{}
	for _, s := range now.Handlers {
		if s.State == outageguard.Closed {
			continue
		}
		name := h.labels.value("handler", s.Handler)
		one := handlers[name]
		since := float64(s.Since.UnixMilli()) / 1000
		if one == nil {
			one = &held{since: since, states: map[outageguard.State]bool{}}
			handlers[name] = one
		}
		one.since = min(one.since, since)
		one.waiting += s.Waiting
		one.states[s.State] = true
	}
	for name, one := range handlers {
		for state := range one.states {
			gauge(h.open, 1, name, state.String())
		}
		gauge(h.since, one.since, name)
		gauge(h.waiting, float64(one.waiting), name)
	}
	away := map[string]bool{}
	for _, store := range now.Stores {
		if name := h.labels.value("store", store.Name); !away[name] {
			away[name] = true
			gauge(h.storeAway, 1, name)
		}
	}
}
