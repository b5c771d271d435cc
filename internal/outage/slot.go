package outage

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
)

type outcome int

const (
	granted outcome = iota // try now
	expired                // the message was held for long enough
	ended                  // its context ended
)

// mustWait reports whether c's message must wait for its next attempt: in an outage, or because it was refused while
// others passed.
func (g *Dependency) mustWait(c *chain.Call) bool {
	if !g.noting.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of, now := recent.Of(c), time.Now()
	return !g.suspects.condemned(of, now) && (g.away.Load() || g.suspects.due(of).After(now))
}

// slot waits until the thing is back, or it is the caller's slot to try. The message that tried last lets others try
// first, because it may be the only one that is refused. A message that was refused while others passed waits until it
// is due, even if others pass.
func (g *Dependency) slot(ctx context.Context, of recent.Message, until time.Time) outcome {
	for {
		g.mu.Lock()
		now := time.Now()
		next, up := g.suspects.due(of), g.up
		if g.failures == 0 {
			up = nil // it is closed
			if !now.Before(next) {
				g.mu.Unlock()
				return granted
			}
		}
		if !now.Before(until) {
			g.mu.Unlock()
			return expired
		}
		if g.failures > 0 {
			probe := g.next
			if of == g.latest && g.waiting > 1 {
				probe = probe.Add(courtesy)
			}
			if probe.After(next) {
				next = probe
			}
			if !now.Before(next) {
				g.next = now.Add(probeEvery)
				g.mu.Unlock()
				return granted
			}
		}
		pause := min(next.Sub(now), until.Sub(now))
		g.mu.Unlock()

		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-up:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ended
		}
	}
}
