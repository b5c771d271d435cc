package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// watch prints the time line, and knows which alerts fire.
type watch struct {
	out    io.Writer
	start  time.Time
	server *server

	mu      sync.Mutex
	now     map[string]bool // alerts that fire
	fired   map[string]bool // alerts that ever did
	cleared map[string]bool // of those, which cleared since
	err     error           // of the last answer
}

func newWatch(out io.Writer, s *server) *watch {
	return &watch{out: out, start: time.Now(), server: s, now: map[string]bool{}, fired: map[string]bool{},
		cleared: map[string]bool{}}
}

// say prints a line of the time line.
func (w *watch) say(what, text string) {
	fmt.Fprintf(w.out, "%6.1f s  %-7s %s\n", time.Since(w.start).Seconds(), what, text)
}

// run asks until the context ends.
func (w *watch) run(ctx context.Context) error {
	for ctx.Err() == nil {
		found, err := w.server.firing(ctx)
		w.note(found, err)
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func (w *watch) note(found []firing, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err != nil {
		return
	}
	was := w.now
	w.now = map[string]bool{}
	for _, one := range found {
		name := one.Labels["alertname"]
		if !was[name] && !w.now[name] {
			w.say("FIRES", name+": "+one.Annotations["summary"])
		}
		w.now[name], w.fired[name] = true, true
		delete(w.cleared, name)
	}
	for name := range was {
		if !w.now[name] {
			w.cleared[name] = true
			w.say("clears", name)
		}
	}
}

// until waits until ok, or returns what is missing when the context ends.
func (w *watch) until(ctx context.Context, ok func() (missing []string)) error {
	for {
		w.mu.Lock()
		missing, last := ok(), w.err
		w.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			if last != nil && context.Cause(ctx) != nil {
				return fmt.Errorf("%v: %w; the last answer of Prometheus: %w", missing, context.Cause(ctx), last)
			}
			return fmt.Errorf("%v: %w", missing, context.Cause(ctx))
		}
	}
}

// forget makes fire wait for alerts that have fired before and do not fire now.
func (w *watch) forget(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if !w.now[name] {
			delete(w.fired, name)
			delete(w.cleared, name)
		}
	}
}

// fire waits until each of these alerts has fired.
func (w *watch) fire(ctx context.Context, names ...string) error {
	if err := w.until(ctx, func() []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.fired[name] })
	}); err != nil {
		return fmt.Errorf("did not fire: %w", err)
	}
	return nil
}

// clear waits until no alert fires.
func (w *watch) clear(ctx context.Context) error {
	if err := w.until(ctx, func() []string { return slices.Sorted(maps.Keys(w.now)) }); err != nil {
		return fmt.Errorf("did not clear: %w", err)
	}
	return nil
}
