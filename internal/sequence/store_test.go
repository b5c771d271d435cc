package sequence_test

import (
	"cmp"
	"slices"

	"github.com/watermill-spillway/spillway/internal/sequence"
)

// message is one delivery of the source. A redrive is another one, with the same id and a higher offset.
type message struct {
	id, key string
	offset  int
}

// state is what a claim finds.
type state int

const (
	entered state = iota // the claim is the caller's
	busy                 // another transaction holds the key
	applied              // settled with an effect
	settled              // settled without one
)

// parked is the first message of a sequence that waits.
type parked struct {
	message
	held    bool // until a person decides
	decided sequence.Decision
}

// store is the tables of keys and of parked messages. Each method is one transaction, but for Claim, whose transaction
// ends with the claim. A method that writes can be told to come again: Settle by busy, and the others by false.
type store interface {
	Claim(m message) (end func(commit bool), found state)
	// Settle writes that m ended without an effect, unless m is settled already.
	Settle(m message) state
	Park(m message, held bool) bool
	Hold(m message) bool
	// Decide writes what a person decided, if m is the first of its key, and nothing was decided before.
	Decide(m message, what sequence.Decision) bool
	Delete(m message) bool
	Head(key string) (parked, bool)
	Length(key string) int
	// Load returns the keys with parked messages.
	Load() []string
	Held() []message
	IsSettled(m message) bool
	// Purge removes the row of a key that is settled, unless its message is parked.
	Purge(id string) bool
}

// keyRow is a row of the receiver's keys.
type keyRow struct {
	state   state
	through int  // the highest offset that was settled without an effect
	free    bool // given up: any delivery may enter
}

// memory is a store without a database. Its faults are those of the switches.
type memory struct {
	broken fault
	keys   map[string]*keyRow
	rows   []parked       // in the order in which they were appended
	length map[string]int // of the fault counted
}

func newMemory(broken fault) *memory {
	return &memory{broken: broken, keys: make(map[string]*keyRow), length: make(map[string]int)}
}

func (s *memory) Claim(m message) (end func(commit bool), found state) {
	k := s.keys[m.id]
	fresh := k == nil
	switch {
	case k == nil:
		k = new(keyRow)
		s.keys[m.id] = k
	case k.state == settled && s.broken == redriveFreesKey:
		if !k.free {
			return nil, settled
		}
	case k.state != settled || m.offset <= k.through:
		return nil, k.state
	}
	before := *k
	k.state = busy
	return func(commit bool) {
		switch {
		case commit:
			k.state = applied
		case fresh:
			delete(s.keys, m.id)
		default:
			*k = before
		}
	}, entered
}

func (s *memory) Settle(m message) state {
	k := s.keys[m.id]
	switch {
	case k == nil:
		s.keys[m.id] = &keyRow{state: settled, through: m.offset}
		return settled
	case k.state == settled:
		k.through, k.free = max(k.through, m.offset), false
	}
	return k.state
}

// giveUp is of the fault redriveFreesKey.
func (s *memory) giveUp(id string) {
	if k := s.keys[id]; k != nil && k.state == settled {
		k.free = true
	}
}

func (s *memory) find(m message) int {
	return slices.IndexFunc(s.rows, func(r parked) bool { return r.message == m })
}

func (s *memory) Park(m message, held bool) bool {
	at := s.find(m)
	if at < 0 || s.broken == counted {
		s.length[m.key]++
	}
	if at < 0 {
		s.rows = append(s.rows, parked{message: m, held: held})
	}
	return true
}

func (s *memory) Hold(m message) bool {
	if at := s.find(m); at >= 0 {
		if s.rows[at].held = true; s.rows[at].decided == sequence.Release {
			s.rows[at].decided = sequence.Undecided
		}
	}
	return true
}

func (s *memory) Decide(m message, what sequence.Decision) bool {
	at := s.find(m)
	first := slices.IndexFunc(s.rows, func(r parked) bool { return r.key == m.key })
	switch {
	case s.broken == decideHead && first >= 0:
		s.rows[first].decided = what
	case at < 0 || at != first || s.rows[at].decided != sequence.Undecided || what == sequence.Release && !s.rows[at].held:
	case s.broken == deleteDecided && what == sequence.Discard:
		return s.Delete(m)
	default:
		s.rows[at].decided = what
	}
	return true
}

func (s *memory) Delete(m message) bool {
	at := s.find(m)
	if s.broken == deleteHead {
		at = slices.IndexFunc(s.rows, func(r parked) bool { return r.key == m.key })
	}
	if at >= 0 {
		s.rows = slices.Delete(s.rows, at, at+1)
		s.length[m.key]--
	}
	return true
}

func (s *memory) IsSettled(m message) bool {
	k := s.keys[m.id]
	return k != nil && (k.state == applied || k.state == settled && m.offset <= k.through)
}

func (s *memory) Head(key string) (parked, bool) {
	for _, r := range s.rows {
		if r.key == key {
			r.held = r.held && (r.decided == sequence.Undecided || s.broken == holdDecided) && (s.broken == trustHeld || !s.IsSettled(r.message))
			return r, true
		}
	}
	return parked{}, false
}

func (s *memory) Length(key string) (n int) {
	for _, r := range s.rows {
		if r.key == key {
			n++
		}
	}
	return n
}

func (s *memory) Load() (keys []string) {
	for _, r := range s.rows {
		keys = append(keys, r.key)
	}
	if s.broken == counted {
		for key, n := range s.length {
			if n > 0 {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Held returns those that a person would release.
func (s *memory) Held() (held []message) {
	for _, r := range s.rows {
		if r.held && r.decided == sequence.Undecided && !s.IsSettled(r.message) {
			held = append(held, r.message)
		}
	}
	slices.SortFunc(held, func(a, b message) int { return cmp.Compare(a.offset, b.offset) })
	return held
}

func (s *memory) Purge(id string) bool {
	k := s.keys[id]
	if k == nil || k.state == busy {
		return false
	}
	if s.broken != purgeParked && slices.ContainsFunc(s.rows, func(r parked) bool { return r.id == id }) {
		return false
	}
	delete(s.keys, id)
	return true
}
