package breaker

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

// quick lets successes pass a closed cell without its lock, while nothing failed since the last success that took the
// lock. The next attempt that takes the lock counts them. Most messages succeed, also where one in a hundred fails.
type quick struct {
	// phase is how often the cell opened, times two, and one more while successes may pass.
	phase atomic.Uint64
	good  atomic.Uint64 // successes that the window does not know yet
	// failed has a bit for each message that the window remembers, and for others by chance.
	failed [1 << 9]atomic.Uint64
	noted  int // how often a message was marked in failed
}

var seed = maphash.MakeSeed()

// bit returns the place of a message in failed.
func (q *quick) bit(id string) (word *atomic.Uint64, mask uint64) {
	h := maphash.String(seed, id)
	return &q.failed[h%uint64(len(q.failed))], 1 << (h >> 58)
}

// may reports whether the success of a message may pass, and the phase.
func (q *quick) may(id string) (phase uint64, ok bool) {
	if phase = q.phase.Load(); phase&1 == 0 || id == "" {
		return phase, false
	}
	word, mask := q.bit(id)
	return phase, word.Load()&mask == 0
}

// note marks a message that the window begins to remember.
func (q *quick) note(id string) {
	word, mask := q.bit(id)
	word.Or(mask)
	q.noted++
}

// quickly calls next for a message that its cell lets pass without the lock. It returns false if none of that is so,
// and then it did nothing. then is not nil if the attempt ended, and the outcome is for the cell to decide.
func (g *Breaker) quickly(known *atomic.Pointer[cell], c *chain.Call, next chain.Handler) (out []*message.Message,
	o chain.Outcome, then *call, done bool) {
	if g.config.Scope != nil || g.frozen.Load() != 0 {
		return nil, o, nil, false
	}
	handler, began := message.HandlerNameFromCtx(c.Ctx), uint64(0)
	s := known.Load()
	if s == nil || s.handler != handler {
		s = g.find(place{handler: handler}, false)
		known.Store(s)
	}
	if s != nil {
		ok := false
		if began, ok = s.quick.may(c.ID()); !ok {
			return nil, o, nil, false
		}
	}
	out, o = next(c)
	switch {
	case s == nil: // nothing of the handler failed so far
		if o.Next != chain.Done || g.find(place{handler: handler}, false) != nil {
			then = g.call(c)
		}
	case o.Next == chain.Done && s.quick.phase.Load() == began:
		s.quick.good.Add(1)
	default:
		then = g.call(c)
		then.cell, then.opened = s, began>>1
	}
	return out, o, then, true
}

// lock takes the cell's lock, and counts the successes that passed without it.
func (s *cell) lock() {
	s.mu.Lock()
	n := s.quick.good.Swap(0)
	if n == 0 || s.state != Closed { // they began before the cell opened
		return
	}
	s.window.passedBy(n)
	s.trustBy(n)
}

// unlock releases the lock. From now on successes pass without it, if nothing depends on the next one.
func (s *cell) unlock() {
	if s.quick.noted > 2*recent.Most {
		s.quick.phase.Store(s.opened << 1)
		s.quick.noted = 0
		for i := range s.quick.failed {
			s.quick.failed[i].Store(0)
		}
		s.window.messages.Each(func(id string) { s.quick.note(id) })
	}
	phase := s.opened << 1
	if s.state == Closed && !s.retired && s.window.attempts == 0 && !(s.troubled && s.late) {
		phase |= 1
	}
	s.quick.phase.Store(phase)
	s.mu.Unlock()
}
