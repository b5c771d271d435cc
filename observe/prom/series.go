package prom

import (
	"maps"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/classify"
)

// place is where attempts are made.
type place struct{ topic, handler string }

// series are those of the attempts in one place: a message that succeeds looks no label up.
type series struct {
	outcomes [classify.ClassAborted + 1]prometheus.Counter
	success  prometheus.Counter
	elapsed  prometheus.Observer
}

// seriesOf returns the series of a place. It has a bound as the labels do: places beyond it share those of their folded names.
func (m *Metrics) seriesOf(p place) *series {
	if s := (*m.series.Load())[p]; s != nil {
		return s
	}
	return m.addSeries(p)
}

func (m *Metrics) addSeries(p place) *series {
	topic, handler := m.labels.value("topic", p.topic), m.labels.value("handler", p.handler)
	m.adding.Lock()
	defer m.adding.Unlock()
	now := *m.series.Load()
	if s := now[p]; s != nil {
		return s
	}
	folded := place{topic, handler}
	s := now[folded]
	if s == nil {
		s = &series{success: m.attempts.WithLabelValues(topic, handler, "success"), elapsed: m.elapsed.WithLabelValues(topic, handler)}
		for class := range s.outcomes {
			s.outcomes[class] = m.attempts.WithLabelValues(topic, handler, classify.Class(class).String())
		}
	}
	if len(now) > 2*m.config.MaxValues && p != folded { // what is beyond the bound is not worth memory
		return s
	}
	next := maps.Clone(now)
	next[folded] = s
	next[place{strings.Clone(p.topic), strings.Clone(p.handler)}] = s
	m.series.Store(&next)
	return s
}
