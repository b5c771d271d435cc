package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
)

// watch shows a run while it goes on: in place on a terminal, a line for every second elsewhere.
type watch struct {
	chart.Picture
	terminal bool
	history  *history

	start   time.Time
	last    sample
	rates   []float64 // of webhooks that were handled, a cell for every look
	calls   []float64 // to the downstream
	dead    []float64 // letters
	breaker []string  // its states
}

type sample struct {
	at                    time.Time
	handled, calls, dead  int
	backlog, held         int
	state                 string
	perSecond, callsOfOne float64
}

// run draws until ctx ends, and once more then.
func (w *watch) run(ctx context.Context) {
	every := time.Second
	if w.terminal {
		every = 500 * time.Millisecond
	}
	w.start = time.Now()
	w.last.at = w.start
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			w.look(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			w.look(ctx)
		}
	}
}

func (w *watch) look(ctx context.Context) {
	backlog, err := w.history.source.backlog(ctx)
	if err != nil {
		return // the run finds out for itself
	}
	before := w.last
	now := sample{
		at: time.Now(), handled: w.history.service.meter.count(), calls: int(w.history.down.calls.Load()),
		dead: int(w.history.service.meter.letters.Load()), backlog: backlog,
	}
	now.state, now.held = w.history.service.breaker()
	seconds := max(now.at.Sub(before.at).Seconds(), 0.1)
	now.perSecond, now.callsOfOne = float64(now.handled-before.handled)/seconds, float64(now.calls-before.calls)/seconds
	w.last = now
	w.rates, w.calls = append(w.rates, now.perSecond), append(w.calls, now.callsOfOne)
	w.dead, w.breaker = append(w.dead, float64(now.dead-before.dead)/seconds), append(w.breaker, now.state)
	if w.terminal {
		w.Draw(w.picture())
		return
	}
	fmt.Fprintln(w.Out, w.line())
}

// picture is what a terminal shows.
func (w *watch) picture() []string {
	s, full := w.last, float64(w.history.plan.Rate)
	return []string{
		fmt.Sprintf("%5.1f s   downstream %s", s.at.Sub(w.start).Seconds(), w.history.state()),
		fmt.Sprintf("handled  %6.0f/s %s", s.perSecond, chart.History(w.rates, full)),
		fmt.Sprintf("calls    %6.0f/s %s", s.callsOfOne, chart.History(w.calls, full)),
		fmt.Sprintf("letters  %6d   %s", s.dead, chart.History(w.dead, full)),
		fmt.Sprintf("breaker %8s   %s", s.state, strip(w.breaker)),
		fmt.Sprintf("waiting  %6d   %d of them held by the breaker", s.backlog, s.held),
	}
}

// line is the same for a log.
func (w *watch) line() string {
	s, full := w.last, float64(w.history.plan.Rate)
	return fmt.Sprintf("%4.0f s %-4s handled %5.0f/s [%-20s] calls %5.0f/s  breaker %-8s held %3d  "+
		"waiting %6d  letters %d",
		s.at.Sub(w.start).Seconds(), w.history.state(), s.perSecond,
		strings.Repeat("=", chart.Cells(s.perSecond, full, 20)),
		s.callsOfOne,
		s.state, s.held, s.backlog, s.dead)
}

func (s *history) state() string {
	if s.down.up.Load() {
		return "up"
	}
	return "AWAY"
}

// strip is a cell for each of the last states: the first letter of each that is not closed.
func strip(states []string) string {
	var b strings.Builder
	for _, state := range states[max(0, len(states)-chart.Columns):] {
		switch state {
		case "closed", "none":
			b.WriteString("·")
		default:
			b.WriteString(state[:1])
		}
	}
	return b.String()
}
