package main

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// waits are short, so that a round ends soon. What is parked of a key is what comes during them.
var waits = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}

// failing is the share of messages that fail twice, in percent.
const failing = 5

// side is one way to consume, whose rate is measured.
type side struct {
	name            string
	messages, lanes int
	base, ordered   bool
	failing         bool
	topic           string
	parked          int64 // of the last round
}

// rates compares many keys at a time with one message at a time, and with messages that fail.
func (b *bench) rates() error {
	sides := []*side{
		{name: "one, lanes only", messages: b.one, lanes: 1},
		{name: "lanes only", messages: b.many, lanes: b.lanes},
		{name: "one, with keys", messages: b.one, lanes: 1, base: true},
		{name: "ordered", messages: b.many, lanes: b.lanes, base: true, ordered: true},
		{name: "ordered, some fail twice", messages: b.many, lanes: b.lanes, base: true, ordered: true, failing: true},
	}
	var measures []func() (float64, error)
	for _, s := range sides {
		s.topic = topicOf("rate")
		if err := b.fill(s.topic, s.messages, b.keys); err != nil {
			return err
		}
		measures = append(measures, func() (float64, error) { return b.rate(s) })
	}
	medians, err := harness.Alternate(b.rounds, measures...)
	if err != nil {
		return err
	}
	for i, s := range sides {
		figure := harness.Figure{"side": s.name, "lanes": s.lanes, "per_s": harness.Whole(medians[i])}
		switch {
		case s.failing:
			figure["of_failure_free"] = harness.Hundredths(medians[i] / medians[i-1])
			figure["failing_percent"], figure["parked"], figure["messages"] = failing, s.parked, s.messages
		case s.lanes > 1:
			figure["times_one"] = harness.Hundredths(medians[i] / medians[i-1])
		}
		if err := harness.Print(b.to, "order_rate", figure); err != nil {
			return err
		}
	}
	return nil
}

// rate returns messages a second.
func (b *bench) rate(s *side) (perSecond float64, err error) {
	c := &consumer{topic: s.topic, group: watermill.NewUUID(), lanes: s.lanes, ordered: s.ordered, delays: waits,
		work: b.work, succeed: s.messages}
	if s.base {
		if c.db, err = b.base(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.db.Close()) }()
	}
	if s.failing {
		attempts := make([]atomic.Int64, s.messages)
		c.fails = func(number int) bool {
			return (number+1)*failing/100 > number*failing/100 && attempts[number].Add(1) <= 2
		}
	}
	took, err := b.run(c)
	if err == nil && s.failing {
		err = c.db.QueryRowContext(b.ctx, `SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('spillway_parked', 'seq')), 0)`).Scan(&s.parked)
	}
	return float64(s.messages) / took.Seconds(), err
}
