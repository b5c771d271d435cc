package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// watch shows a run while it goes on: in place on a terminal, a line for every second elsewhere. It shows counts and
// nothing that a message brings along.
type watch struct {
	chart.Picture
	terminal bool
	plan     *Plan
	consumer *consumer
	down     *downstream

	start    time.Time
	last     sample
	rates    []float64 // of live events, a cell for every look
	lastLine time.Time
}

type sample struct {
	effects
	dead int
	at   time.Time
}

const looks = 500 * time.Millisecond

// run draws until ctx ends, and once more then.
func (c *watch) run(ctx context.Context) {
	c.start = time.Now()
	c.last.at = c.start
	ticker := time.NewTicker(looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			c.look(context.WithoutCancel(ctx), true)
			return
		case <-ticker.C:
			c.look(ctx, false)
		}
	}
}

func (c *watch) look(ctx context.Context, last bool) {
	now := time.Now()
	if !c.terminal && !last && now.Sub(c.lastLine) < time.Second-looks/2 {
		return
	}
	stored, err := c.plan.effects(ctx, c.consumer.db)
	if err != nil {
		return // the run finds out for itself
	}
	dead, err := c.consumer.letters.Count(ctx, letters.Filter{})
	if err != nil {
		return
	}
	rate := float64(stored.live-c.last.live) / max(now.Sub(c.last.at).Seconds(), 0.1)
	c.last = sample{stored, dead, now}
	c.rates = append(c.rates, rate)
	c.lastLine = now
	if c.terminal {
		c.Draw(c.picture(rate))
		return
	}
	fmt.Fprintln(c.Out, c.line(rate))
}
