package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
)

const (
	waits     = time.Second
	jitter    = 0.1 // the default
	perSecond = 200
)

// latenesses are what messages of one kind of stage were late by, in each round.
type latenesses struct {
	kind     string
	store    bool
	inFlight int
	p50, p99 []float64
}

// lateness is how long after it was due a message comes to its handler again, of so many a second that all fail once.
func lateness(c *cluster, p plan) ([]harness.Figure, error) {
	d, err := open(c.Ctx, "postgres")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	kinds := []*latenesses{
		{kind: "kafka topic", inFlight: 1}, {kind: fmt.Sprintf("kafka topic, %d in flight", together),
			inFlight: together},
		{kind: "postgres store", inFlight: 1, store: true},
	}
	for range p.latenessRounds {
		for _, k := range kinds {
			var store *delay.Store
			if k.store {
				store = d.store
			}
			late, err := c.late(store, k.inFlight, p.lateness)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.kind, err)
			}
			harness.Progress("%s: %.1f ms late", k.kind, late[len(late)/2])
			k.p50 = append(k.p50, late[len(late)/2])
			k.p99 = append(k.p99, late[len(late)*99/100])
		}
	}
	var figures []harness.Figure
	for _, k := range kinds {
		figures = append(figures, harness.Figure{
			"kind": k.kind, "jitter_ms": harness.Whole(jitter * waits.Seconds() * 1e3),
			"p50": harness.Hundredths(harness.Median(k.p50)), "p99": harness.Hundredths(harness.Median(k.p99)),
		})
	}
	return figures, c.Remove()
}

// late returns in milliseconds how late n messages were, in order. Those before them, of up to two seconds, are not
// counted: they wait for their consumer group.
func (c *cluster) late(store *delay.Store, inFlight, n int) (late []float64, err error) {
	s, err := c.stage(store, inFlight)
	if err != nil {
		return nil, err
	}
	first := min(n/2, 2*perSecond)
	var lock sync.Mutex
	var failed atomic.Bool
	done := make(chan struct{})
	again := make(map[int]bool)
	err = s.run(func(msg *message.Message) error {
		due := inside.Poison.StageOf(msg).DueAt
		if due.IsZero() {
			return harness.ErrDown
		}
		lock.Lock()
		defer lock.Unlock()
		if number := harness.NumberOf(msg.Payload); number >= first && !again[number] {
			again[number] = true
			if late = append(late, float64(time.Since(due).Microseconds())/1e3); len(late) == n {
				close(done)
			}
		}
		return nil
	}, func() { failed.Store(c.publishSteadily(s.topic, first+n) != nil) }, done)
	lock.Lock()
	defer lock.Unlock()
	if err == nil && (failed.Load() || len(late) < n) {
		err = fmt.Errorf("%d of %d messages came again", len(late), n)
	}
	slices.Sort(late)
	return late, err
}

func (c *cluster) publishSteadily(topic string, n int) error {
	ticker := time.NewTicker(time.Second / perSecond)
	defer ticker.Stop()
	for number := range n {
		<-ticker.C
		if err := c.Pub.Publish(topic, harness.Numbered(number)); err != nil {
			return err
		}
	}
	return nil
}
