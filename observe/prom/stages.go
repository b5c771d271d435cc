package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/internal/few"
)

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
