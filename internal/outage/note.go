package outage

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
)

// failed notes the outcome of an attempt, and reports whether it failed because the thing is away.
func (g *Dependency) failed(ctx context.Context, c *chain.Call, err error) bool {
	if err == nil {
		g.passed(c)
		return false
	}
	if ctx.Err() != nil { // the attempt was cut off: it proves nothing
		return false
	}
	if !g.config.Away(err) {
		return false
	}
	lost, l := g.config.Lost != nil && g.config.Lost(err), linkOf(err)
	g.mu.Lock()
	defer g.mu.Unlock()
	now, of := time.Now(), recent.Of(c)
	g.noting.Store(true)
	alone := g.suspects.refused(of, now, lost, l)
	nacked := g.config.Nacked != nil && g.config.Nacked(err)
	if !alone && g.nacks.letsGo(nacked, now) {
		g.suspects.condemn(of, now)
	}
	if g.suspects.condemned(of, now) {
		if !nacked && g.episode.isOf(of) { // it was no outage but this message
			g.recovered(now)
		}
		return true
	}
	if alone { // others pass
		return true
	}
	if g.failures == 0 {
		g.up = make(chan struct{})
	}
	if g.failures == 0 || of != g.latest || now.Sub(g.latestAt) >= probeEvery { // else one message came again at once
		g.failures++
	}
	g.latest, g.latestAt, g.next = of, now, now.Add(probeEvery)
	if g.failures >= closedAfter {
		g.away.Store(true)
	}
	if !g.suspects.passing(of, now) {
		g.failing(of, now, err)
	}
	return true
}

// passed notes a success. Nearly always there is nothing to note.
func (g *Dependency) passed(c *chain.Call) {
	if !g.noting.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.nacks = nacks{}
	g.suspects.passed(recent.Of(c), now)
	g.recovered(now)
	g.noting.Store(g.suspects.Len() > 0)
}

// recovered lets all messages go on. The caller holds mu.
func (g *Dependency) recovered(now time.Time) {
	if g.failures == 0 {
		return
	}
	g.failures = 0
	close(g.up)
	g.away.Store(false)
	g.calming(now)
}

// refusedForGood reports whether the error is about c's message, although it looks like an outage.
func (g *Dependency) refusedForGood(c *chain.Call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspects.condemned(recent.Of(c), time.Now())
}
