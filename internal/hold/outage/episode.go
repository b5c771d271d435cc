package outage

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

const (
	// declaredAfter is how long attempts must have failed before the log calls it an outage. All requests in flight can
	// fail at one instant.
	declaredAfter = time.Second
	// calm is how long no attempt must have failed before the log says that the outage is over. Messages do not wait
	// for it.
	calm = 2 * time.Second
)

// episode is an outage in the log: failures with less than calm between them. The dependency's lock guards it.
type episode struct {
	began    time.Time      // of the first failure
	last     time.Time      // of the latest failure
	back     time.Time      // of the first success after it
	of       recent.Message // of the first failure
	several  bool           // messages failed
	logged   bool           // its begin
	watched  bool           // a timer looks for its end
	held     int            // messages that waited
	returned int            // of these, and others, given back
}

// isOf reports whether one message alone failed.
func (e *episode) isOf(of recent.Message) bool { return !e.several && e.of == of }

// failing notes a failure, and logs that an outage began. The caller holds mu.
func (g *Dependency) failing(of recent.Message, now time.Time, err error) {
	e := &g.episode
	if !e.logged && (e.last.IsZero() || !e.back.Before(e.last) && now.Sub(e.last) >= calm) {
		*e = episode{began: now, of: of, watched: e.watched, held: e.held, returned: e.returned}
	}
	e.last = now
	e.several = e.several || of != e.of
	if e.logged || now.Sub(e.began) < declaredAfter {
		return
	}
	e.logged = true
	logging.OutageBegan.Write(g.config.Logger, err,
		logging.Fields{logging.Store: g.config.Name, logging.Since: e.began.UTC().Format(time.RFC3339Nano)})
}

// calming notes a success after failures. The caller holds mu.
func (g *Dependency) calming(now time.Time) {
	e := &g.episode
	e.back = now
	if !e.logged {
		e.held, e.returned = 0, 0
	} else if !e.watched {
		e.watched = true
		time.AfterFunc(calm, g.calmed)
	}
}

// calmed logs that an outage is over, if nothing failed for some time.
func (g *Dependency) calmed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, now := &g.episode, time.Now()
	e.watched = false
	if g.failures > 0 { // the next success looks again
		return
	}
	if rest := calm - now.Sub(e.last); rest > 0 {
		e.watched = true
		time.AfterFunc(rest, g.calmed)
		return
	}
	fields := logging.Fields{logging.Store: g.config.Name,
		"lasted":     e.back.Sub(e.began).Round(time.Millisecond).String(),
		logging.Held: e.held, "given_back": e.returned}
	*e = episode{}
	logging.OutageEnded.Write(g.config.Logger, nil, fields)
}
