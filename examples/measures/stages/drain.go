package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/measures/harness"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	together = 16                   // messages of a stage in flight, where it is more than one
	works    = 5 * time.Millisecond // a handler for each message
)

// drain is how many messages a second leave one partition of a stage in which all are due, as after an outage.
func drain(c *cluster, p plan) (figures []harness.Figure, err error) {
	rates := map[int][]float64{}
	for range p.drainRounds {
		for _, inFlight := range []int{1, together} {
			rate, err := c.drained(inFlight, p.drained)
			if err != nil {
				return nil, err
			}
			rates[inFlight] = append(rates[inFlight], rate)
		}
	}
	for _, inFlight := range []int{1, together} {
		figures = append(figures, harness.Figure{
			"in_flight": inFlight, "handler_ms": works.Milliseconds(), "per_s": harness.Whole(harness.Median(rates[inFlight])),
		})
	}
	return figures, c.Remove()
}

func (c *cluster) drained(inFlight, n int) (perSecond float64, err error) {
	s, err := c.stage(nil, inFlight)
	if err != nil {
		return 0, err
	}
	var lock sync.Mutex
	var began, last time.Time
	again := make(map[int]bool)
	done := make(chan struct{})
	var published error
	err = s.run(func(msg *message.Message) error {
		if poison.Inside().StageOf(msg).DueAt.IsZero() {
			return harness.ErrDown
		}
		lock.Lock()
		if began.IsZero() {
			began = time.Now()
		}
		lock.Unlock()
		time.Sleep(works)
		lock.Lock()
		defer lock.Unlock()
		if number := harness.NumberOf(msg.Payload); !again[number] {
			again[number] = true
			if last = time.Now(); len(again) == n {
				close(done)
			}
		}
		return nil
	}, func() {
		messages := make([]*message.Message, n)
		for i := range messages {
			messages[i] = harness.Numbered(i)
		}
		err := s.stages.Publish(s.topic, messages...)
		lock.Lock()
		defer lock.Unlock()
		published = err
	}, done)
	lock.Lock()
	defer lock.Unlock()
	if err == nil && len(again) < n {
		err = fmt.Errorf("%d of %d messages came again: %w", len(again), n, published)
	}
	return float64(len(again)) / last.Sub(began).Seconds(), err
}
