package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// chart shows a run while it goes on: in place on a terminal, a line for every second elsewhere. It shows counts and
// nothing that a message brings along.
type chart struct {
	out      *os.File
	terminal bool
	plan     *Plan
	consumer *consumer
	down     *downstream

	start    time.Time
	last     sample
	rates    []float64 // of live events, a cell for every look
	drawn    int       // lines that the next look is drawn over
	lastLine time.Time
}

type sample struct {
	effects
	dead int
	at   time.Time
}

const looks = 500 * time.Millisecond

// screen is where people look. Where it is no terminal, standard output is for the result alone.
func screen() (out *os.File, terminal bool) {
	info, err := os.Stdout.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		return os.Stdout, true
	}
	return os.Stderr, false
}

// run draws until ctx ends, and once more then.
func (c *chart) run(ctx context.Context) {
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

func (c *chart) look(ctx context.Context, last bool) {
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
		c.draw(c.picture(rate))
		return
	}
	fmt.Fprintln(c.out, c.line(rate))
}

// draw writes lines over those of the last look.
func (c *chart) draw(lines []string) {
	var b strings.Builder
	if c.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", c.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	c.drawn = len(lines)
	_, _ = c.out.WriteString(b.String())
}
