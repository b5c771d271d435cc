package main

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// stage is what parks messages, and drains them: the first message of each key fails, and the others go behind it.
type stage struct {
	name  string
	keys  int
	topic string

	drained []float64
}

// parking measures how many messages a second are parked, and drained.
func (b *bench) parking() error {
	stages := []*stage{{name: "appended", keys: b.keys}, {name: "failing", keys: b.parked}}
	var measures []func() (float64, error)
	for _, s := range stages {
		s.topic = topicOf("park")
		if err := b.fill(s.topic, b.parked, s.keys); err != nil {
			return err
		}
		measures = append(measures, func() (float64, error) { return b.park(s) })
	}
	medians, err := harness.Alternate(b.rounds, measures...)
	if err != nil {
		return err
	}
	for i, s := range stages {
		if err := harness.Print(b.to, "order_parking_per_s", harness.Figure{"messages": s.name, "keys": s.keys,
			"parked_per_s":  harness.Whole(medians[i]),
			"drained_per_s": harness.Whole(harness.Median(s.drained[1:]))}); err != nil {
			return err
		}
	}
	return nil
}

// park returns how many messages a second are parked, and notes how many are drained afterwards.
func (b *bench) park(s *stage) (perSecond float64, err error) {
	db, err := b.base()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows := func() (n int, err error) {
		err = db.QueryRowContext(b.ctx, `SELECT count(*) FROM spillway_parked`).Scan(&n)
		return n, err
	}
	c := &consumer{topic: s.topic, group: watermill.NewUUID(), db: db, lanes: b.lanes, ordered: true,
		delays: []time.Duration{time.Hour}, fails: func(int) bool { return true },
		until: func() (bool, error) { n, err := rows(); return n == b.parked, err }}
	parked, err := b.run(c)
	if err != nil {
		return 0, err
	}
	if _, err := db.ExecContext(b.ctx, `UPDATE spillway_parked SET due_at = 0`); err != nil {
		return 0, err
	}
	c = &consumer{topic: s.topic, group: c.group, db: db, lanes: b.lanes, ordered: true, delays: c.delays,
		until: func() (bool, error) { n, err := rows(); return n == 0, err }}
	drained, err := b.run(c)
	s.drained = append(s.drained, float64(b.parked)/drained.Seconds())
	return float64(b.parked) / parked.Seconds(), err
}
