package main

import (
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
)

// picture is what a terminal shows.
func (c *watch) picture(rate float64) []string {
	seconds := c.last.at.Sub(c.start).Seconds()
	lines := []string{
		fmt.Sprintf("%5.1f s   downstream %s", seconds, c.state()),
		fmt.Sprintf("live      %6.0f/s %s", rate, chart.Bar(rate, float64(c.plan.Rate))),
		fmt.Sprintf("  so far           %s", chart.History(c.rates, float64(c.plan.Rate))),
	}
	if !c.plan.Blocking {
		for i, delay := range c.plan.Stages {
			n := c.waiting(i)
			lines = append(lines, fmt.Sprintf("stage %-6s%5d   %s", delay, n,
				chart.Bar(float64(n), float64(c.plan.Rate))))
		}
	}
	return append(lines,
		fmt.Sprintf("dead letters%4d", c.last.dead),
		fmt.Sprintf("stored    %6d   of %d deliveries", c.last.all, len(c.plan.deliveries)))
}

// line is the same for a log.
func (c *watch) line(rate float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%4.0f s %-4s live %4.0f/s [%-20s] stored %5d", c.last.at.Sub(c.start).Seconds(), c.state(), rate,
		strings.Repeat("=", chart.Cells(rate, float64(c.plan.Rate), 20)), c.last.all)
	if !c.plan.Blocking {
		b.WriteString("  stages")
		for i, delay := range c.plan.Stages {
			fmt.Fprintf(&b, " %s:%-3d", delay, c.waiting(i))
		}
	}
	fmt.Fprintf(&b, "  dead %d", c.last.dead)
	return b.String()
}

// waiting is never less than none: a message can come back before its way there was counted, and a redriven one never
// went.
func (c *watch) waiting(stage int) int64 { return max(c.consumer.waiting[stage].Load(), 0) }

func (c *watch) state() string {
	if c.down.up.Load() {
		return "up"
	}
	return "DOWN"
}
