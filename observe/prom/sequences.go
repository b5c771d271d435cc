package prom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// parked is the collector of the messages that wait in the order of their key.
type parked struct {
	source                            *source[[]sequence.Standing]
	state                             sourceState
	labels                            *bounded
	sequences, held, waiting, overdue *prometheus.Desc
}

func newParked(source *source[[]sequence.Standing], labels *bounded) *parked {
	return &parked{source: source, state: newSourceState("sequences"), labels: labels,
		sequences: newDesc("sequences", "Keys of a partition with parked messages.", "topic"),
		held: newDesc("sequences_held", "Keys of a partition whose messages are held until a person decides.",
			"topic"),
		waiting: newDesc("sequences_waiting", "Messages that are parked in the order of their key.", "topic"),
		overdue: newDesc("sequences_overdue_seconds",
			"How long the first parked message of a key is due and not begun; 0 if "+
				"none is. Held ones do not count.", "topic"),
	}
}

func (p *parked) Describe(ch chan<- *prometheus.Desc) {
	p.state.describe(ch)
	for _, d := range []*prometheus.Desc{p.sequences, p.held, p.waiting, p.overdue} {
		ch <- d
	}
}

func (p *parked) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := p.source.read()
	p.state.collect(ch, at, ok)
	if !p.source.fresh(at, ok) {
		return
	}
	type sum struct{ sequences, held, waiting, overdue float64 }
	sums := make(map[string]sum)
	for _, s := range now {
		topic := p.labels.value("topic", s.Topic)
		n := sums[topic]
		sums[topic] = sum{n.sequences + float64(s.Sequences), n.held + float64(s.Held), n.waiting + float64(s.Messages),
			max(n.overdue, s.Overdue.Seconds())}
	}
	for topic, n := range sums {
		gauge(ch, p.sequences, n.sequences, topic)
		gauge(ch, p.held, n.held, topic)
		gauge(ch, p.waiting, n.waiting, topic)
		gauge(ch, p.overdue, n.overdue, topic)
	}
}

// scrapedSequences returns no collector for a channel without such a table.
func (m *Metrics) scrapedSequences(ctx context.Context, channel *spillway.Channel) ([]prometheus.Collector, error) {
	table, err := sequence.TableOf(ctx, channel)
	if err != nil || table == nil {
		return nil, err
	}
	source, err := newSource(ctx, table.DB(), table.Service(), "sequences/1", &m.config, table.Standing)
	if err != nil {
		return nil, err
	}
	return []prometheus.Collector{newParked(source, m.labels)}, nil
}
