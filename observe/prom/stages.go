package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/middleware/stages"
)

// staged is the collector of the messages that wait in the delay store.
type staged struct {
	*source[[]stages.Backlog]
	state            sourceState
	labels           *bounded
	waiting, overdue *prometheus.Desc
}

func newStaged(source *source[[]stages.Backlog], labels *bounded) *staged {
	return &staged{source: source, state: newSourceState("stages"), labels: labels,
		waiting: newDesc("stage_waiting", "Messages that wait in the delay store, in all stages of a handler.", "topic", "handler"),
		overdue: newDesc("stage_overdue_seconds", "How long the first message in the delay store is overdue; 0 if none is.", "topic", "handler"),
	}
}

func (s *staged) Describe(ch chan<- *prometheus.Desc) {
	s.state.describe(ch)
	ch <- s.waiting
	ch <- s.overdue
}

func (s *staged) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := s.read()
	s.state.collect(ch, at, ok)
	if !s.fresh(at, ok) {
		return
	}
	type sum struct{ waiting, overdue float64 }
	sums := make(map[place]sum)
	for _, b := range now {
		if b.Handler == "" {
			b.Topic = b.StageTopic
		}
		of := place{s.labels.value("topic", b.Topic), s.labels.value("handler", b.Handler)}
		sums[of] = sum{sums[of].waiting + float64(b.Messages), max(sums[of].overdue, b.Overdue.Seconds())}
	}
	for of, n := range sums {
		gauge(ch, s.waiting, n.waiting, of.topic, of.handler)
		gauge(ch, s.overdue, n.overdue, of.topic, of.handler)
	}
}
