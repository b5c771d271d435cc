package outage

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// NewNack returns an error for a broker that is reached and does not confirm: it nacks, or is silent. It is
// Unavailable, and Nacked.
func NewNack(text string) error { return &nack{text} }

type nack struct{ text string }

func (e *nack) Error() string { return e.text }

// Nacked reports whether err is what a broker that is reached says of itself, and not of the message: a nack, or
// silence. A queue can be full for good: see Config.Nacked.
func Nacked(err error) bool {
	return has(err, func(err error) bool {
		_, is := err.(*nack)
		return is || nackedByKafka(foreign.ErrorOf(err))
	})
}

// nacksOfKafka are Kafka's codes with which a broker refuses for reasons of its own: an error that it does not explain,
// a leader without this listener, a quota.
var nacksOfKafka = map[int64]bool{-1: true, 72: true, 89: true}

func nackedByKafka(e foreign.Error) bool { return e.Kind == foreign.Kafka && nacksOfKafka[e.Code()] }

// nacks are the nacks of one thing since a message passed. If all messages are nacked for maxRefusal, one message in
// each such time is let go, with its error: without that, a queue that is full for good would hold all of them for
// ever. The dependency's lock guards it.
type nacks struct {
	since, latest time.Time // without another failure in between
	let           time.Time // when a message was last let go
}

// letsGo notes a failure, and reports whether its message is let go.
func (n *nacks) letsGo(nacked bool, now time.Time) bool {
	if !nacked { // it is unavailable: the nacks before are of an earlier time
		*n = nacks{let: n.let}
		return false
	}
	if n.since.IsZero() || now.Sub(n.latest) >= idle {
		n.since = now
	}
	n.latest = now
	if now.Sub(n.since) < maxRefusal || now.Sub(n.let) < maxRefusal {
		return false
	}
	n.let = now
	return true
}

// holds notes the outcome of an attempt, and reports whether c's message is to be held, because the thing is
// unavailable. It is not if the error is about the message, although it looks like an outage.
func (g *Dependency) holds(ctx context.Context, c *chain.Call, err error) bool {
	if err == nil {
		g.passed(c)
		return false
	}
	if ctx.Err() != nil || !g.config.Unavailable(err) { // an attempt that was cut off proves nothing
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
		g.suspects.Note(of, now).hopeless = true
	}
	if g.suspects.condemned(of, now) {
		if !nacked && g.episode.isOf(of) { // it was no outage but this message
			g.recovered(now)
		}
		return false
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
	g.calming(now)
}

// mustWait reports whether c's message must wait for its next attempt: in an outage, or because it was refused while
// others passed.
func (g *Dependency) mustWait(c *chain.Call) bool {
	if !g.noting.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of, now := recent.Of(c), time.Now()
	return !g.suspects.condemned(of, now) && (g.failures >= closedAfter || g.suspects.due(of).After(now))
}

// slot waits until the thing is back, or it is the caller's slot to try. It returns false if the message was held for
// long enough, or ctx ended. The message that tried last lets others try first, because it may be the only one that is
// refused. A message that was refused while others passed waits until it is due, even if others pass.
func (g *Dependency) slot(ctx context.Context, of recent.Message, until time.Time) bool {
	for {
		g.mu.Lock()
		now, next, up := time.Now(), g.suspects.due(of), g.up
		down := g.failures > 0
		if !down {
			up = nil // it is closed
		} else {
			probe := g.next
			if of == g.latest && g.waiting > 1 {
				probe = probe.Add(courtesy)
			}
			if probe.After(next) {
				next = probe
			}
		}
		due, expired := !now.Before(next), !now.Before(until)
		if down && due && !expired {
			g.next = now.Add(probeEvery)
		}
		g.mu.Unlock()
		if due || expired {
			return due && !(down && expired)
		}
		timer := time.NewTimer(min(next.Sub(now), until.Sub(now)))
		select {
		case <-timer.C:
		case <-up:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}
