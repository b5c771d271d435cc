package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// news is what the other instances must know of a cell.
type news struct {
	cell   *cell
	at     place
	what   what
	reason string
	cause  string
}

type what int

const (
	isOpen   what = iota // by the failures of this instance
	isStill              // open, as the store knows
	isProved             // over: a message succeeded
	isOver               // over, or never of this instance
)

// shared is what a cell knows of the other instances.
type shared struct {
	open   bool      // only others say that the downstream is away
	row    bool      // the store has this instance's outage
	proved bool      // a message succeeded, and the others do not know yet
	until  time.Time // others have no say: a message succeeded here while they said that the downstream is away
}

// share does what the other instances say, and returns what they must know. own has the rows of this instance, and
// others one of another instance for each place.
func (g *Breaker) share(own map[place]bool, others map[place]Status) (all []news) {
	defer g.tell()
	for at := range others {
		g.find(at, true)
	}
	cells := g.shareable()
	now := time.Now()
	for at, s := range cells {
		s.lock()
		row, said := others[at]
		s.hear(own[at], said, row, now)
		if n, ok := s.news(at); ok {
			all = append(all, n)
		}
		s.unlock()
	}
	return all
}

// shareable returns the cells that others can know.
func (g *Breaker) shareable() map[place]*cell {
	g.mu.RLock()
	defer g.mu.RUnlock()
	cells := make(map[place]*cell, len(g.cells))
	for at, s := range g.cells {
		if canBeShared(at) {
			cells[at] = s
		}
	}
	return cells
}

// lonely lets this instance decide for itself: the store is not asked any more.
func (g *Breaker) lonely() {
	for _, s := range g.shareable() {
		s.lock()
		s.shared.open, s.shared.row = false, false
		s.unlock()
	}
}

// hear does what the other instances say of the cell.
func (s *cell) hear(own, said bool, row Status, now time.Time) {
	isOpen := s.state == Open || s.state == HalfOpen
	switch {
	case s.state == Closed && said && now.After(s.shared.until) && !s.shared.proved:
		s.trouble(now)
		s.open(ReasonShared, otherInstance(row), classify.Verdict{}, nil, now)
		s.confirmed, s.shared.open = true, true
	case isOpen && s.shared.open && !said, isOpen && s.shared.row && !own && !said:
		s.shared.open, s.shared.row = false, false // another instance's message succeeded, or that instance died
		s.beginRamp(now)
	}
}

// otherInstance returns the cause of an outage that another instance found.
func otherInstance(row Status) error {
	return fmt.Errorf("another instance, %s: %w", boundedtext.Text(row.Instance, 40), errors.New(row.Cause))
}

// prove notes that a message succeeded while the cell was open.
func (s *shared) prove(now time.Time) {
	s.proved = true
	if s.open {
		s.open, s.until = false, now.Add(calm)
	}
}

// news returns what the other instances must know of the cell.
func (s *cell) news(at place) (news, bool) {
	n := news{cell: s, at: at}
	switch {
	case s.shared.proved:
		n.what = isProved
	case (s.state == Open || s.state == HalfOpen) && !s.shared.open:
		if n.reason = boundedtext.Text(s.reason, 200); s.shared.row {
			n.what = isStill
		}
		if cause := s.breaker.cause(s.cause); cause != nil {
			n.cause = boundedtext.Text(cause.Error(), 1000)
		}
	case s.shared.row:
		n.what = isOver
	default:
		return n, false
	}
	return n, true
}

// written notes that the other instances can know.
func (s *cell) written(n news) {
	s.lock()
	defer s.unlock()
	s.shared.row = n.what == isOpen || n.what == isStill // also if a proof removed the row: the next round finds that
	if n.what == isProved {
		s.shared.proved = false
	}
}
