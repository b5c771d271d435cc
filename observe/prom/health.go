package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// health reads the states of breakers and stores at a scrape. It asks no database.
type health struct {
	channel                                     *spillway.Channel
	labels                                      *bounded
	ok, open, since, waiting, storeAway, budget *prometheus.Desc
}

func newHealth(channel *spillway.Channel, labels *bounded) *health {
	return &health{channel: channel, labels: labels,
		ok: newDesc("ok", "1 if no handler's messages are held, and no message found a store of the channel away."),
		open: newDesc("outage_open", "1 while the breaker holds a handler's messages, by its state. A freeze of all "+
			"handlers has an empty handler.", "handler", "state"),
		since: newDesc("outage_since_timestamp_seconds", "Since when the breaker was not closed, as Unix time.",
			"handler"),
		waiting:   newDesc("outage_waiting", "Messages that the breaker holds.", "handler"),
		storeAway: newDesc("store_away", "1 while a store or publisher of the channel itself is away.", "store"),
		budget: newDesc("retry_budget_spent", "1 while a retry budget has no further attempt. A budget that handlers "+
			"share has an empty handler.", "handler", "traffic"),
	}
}

func (h *health) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.ok, h.open, h.since, h.waiting, h.storeAway, h.budget} {
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
		states  map[breaker.State]bool
	}
	handlers := map[string]*held{}
	for _, s := range now.Handlers {
		if s.State == breaker.Closed {
			continue
		}
		name := h.labels.value("handler", s.Handler)
		one := handlers[name]
		since := float64(s.Since.UnixMilli()) / 1000
		if one == nil {
			one = &held{since: since, states: map[breaker.State]bool{}}
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
	away := map[string]bool{}
	for _, store := range now.Stores {
		if name := h.labels.value("store", store.Name); !away[name] {
			away[name] = true
			gauge(ch, h.storeAway, 1, name)
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
